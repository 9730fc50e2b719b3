"""Host memory that small programs of each framework take, in a fresh process.

    python benchmarks/framework_memory.py PYTHON

PYTHON is the interpreter of an environment that has the frameworks. Prints the highest resident set
and what of it is no file: the table of `headway/estimate/framework_memory.py` is the first with a
third on top.
"""

import subprocess
import sys
import textwrap

_ARRAYS = "np.random.rand(1000, 10), np.random.randint(0, 2, 1000)"
PROGRAMS = {
    "python": "",
    "numpy": "import numpy as np; a = np.random.rand(500, 500); a @ a",
    "pandas": """
        import numpy as np, pandas as pd
        table = pd.DataFrame(np.random.rand(10000, 10)); table.groupby(table[0] > .5).mean()
        """,
    "sklearn": """
        from sklearn.datasets import load_digits
        from sklearn.ensemble import RandomForestClassifier
        RandomForestClassifier().fit(*load_digits(return_X_y=True))
        """,
    "statsmodels": """
        import numpy as np, statsmodels.api as sm
        sm.OLS(np.random.rand(100), np.random.rand(100, 3)).fit()
        """,
    "xgboost": f"""
        import numpy as np, xgboost
        xgboost.XGBClassifier(n_estimators=50).fit({_ARRAYS})
        """,
    "lightgbm": f"""
        import numpy as np, lightgbm
        lightgbm.LGBMClassifier(n_estimators=50, verbose=-1).fit({_ARRAYS})
        """,
    "catboost": f"""
        import numpy as np, catboost
        catboost.CatBoostClassifier(iterations=50, allow_writing_files=False).fit({_ARRAYS})
        """,
    "torch": """
        import torch as t; n = t.nn
        net = n.Sequential(n.Conv2d(1, 32, 3), n.ReLU(), n.Flatten(), n.Linear(32 * 26 * 26, 10))
        steps = t.optim.Adam(net.parameters())
        for _ in range(20):
            loss = n.functional.cross_entropy(net(t.rand(64, 1, 28, 28)), t.zeros(64).long())
            steps.zero_grad(); loss.backward(); steps.step()
        """,
    "lightning": """
        import lightning, torch as t
        class Net(lightning.LightningModule):
            def __init__(self): super().__init__(); self.line = t.nn.Linear(10, 1)
            def training_step(self, batch, _): return self.line(batch[0]).mean()
            def configure_optimizers(self): return t.optim.Adam(self.parameters())
        data = t.utils.data.DataLoader(t.utils.data.TensorDataset(t.rand(512, 10)), batch_size=32)
        lightning.Trainer(max_epochs=2, logger=False, enable_checkpointing=False).fit(Net(), data)
        """,
    "transformers": """
        import torch as t, transformers as h
        net = h.BertForSequenceClassification(h.BertConfig(
            num_hidden_layers=2, hidden_size=128, num_attention_heads=2, intermediate_size=256))
        steps = t.optim.AdamW(net.parameters())
        for _ in range(5):
            said = net(input_ids=t.zeros(8, 64).long(), labels=t.zeros(8).long())
            said.loss.backward(); steps.step()
        """,
    "stable_baselines3": """
        from stable_baselines3 import PPO
        PPO("MlpPolicy", "CartPole-v1", n_steps=256).learn(1024)
        """,
    "tensorflow": """
        import numpy as np, tensorflow as tf
        k = tf.keras.layers
        net = tf.keras.Sequential([k.Conv2D(32, 3), k.Flatten(), k.Dense(10)])
        net.compile("adam", tf.keras.losses.SparseCategoricalCrossentropy(True))
        net.fit(np.random.rand(1000, 28, 28, 1), np.zeros(1000), verbose=0)
        """,
    "jax": """
        import jax, jax.numpy as jnp
        slope = jax.jit(jax.grad(lambda w, x: (jnp.tanh(x @ w) ** 2).sum()))
        w = jnp.ones((256, 256))
        for _ in range(50): w = w - .01 * slope(w, jnp.ones((64, 256)))
        """,
    "spacy": """
        import spacy
        words = spacy.blank("en").add_pipe("textcat"); words.add_label("a"); words.add_label("b")
        """,
}
_TELL = """
import resource
anonymous = [line for line in open("/proc/self/status") if line.startswith("RssAnon")]
print("@", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, anonymous[0].split()[1])
"""


def main() -> None:
    """Print the table."""
    print(f"{'framework':18} {'resident MiB':>13} {'of it no file':>14}")
    for name, program in PROGRAMS.items():
        ran = subprocess.run(
            [sys.argv[1], "-c", textwrap.dedent(program) + _TELL],
            capture_output=True,
            text=True,
            env={"OMP_NUM_THREADS": "2", "PATH": "/usr/bin:/bin", "HOME": "/tmp"},
            check=False,
        )
        said = [line.split() for line in ran.stdout.splitlines() if line.startswith("@")]
        if not said:
            print(f"{name:18} {(ran.stderr.strip().splitlines() or ['?'])[-1][:70]}")
            continue
        resident, anonymous = (int(each) // 1024 for each in said[0][1:])
        print(f"{name:18} {resident:13} {anonymous:14}", flush=True)


if __name__ == "__main__":
    main()
