"""What files of configuration tell of a program, and that nothing else of a machine is read."""

import os
from pathlib import Path

import pytest

from headway.client.uploads import as_if_sent, with_training
from headway.code.settings import settings_of
from headway.estimate.options import numbers_of
from headway.model.job_text import job_from_document
from headway.progress.options import Totals, totals_of

BOMB = "a: &a [1, 1]\n" + "".join(f"b{n}: &b{n} [*a, *a]\n" for n in range(9)) + "epochs: 3\n"


def configured(folder: Path, command: str) -> dict[str, float]:
    """As an estimator sees it: what the command overrides counts as it says."""
    words = command.split()
    return numbers_of(words, settings_of(folder, words))


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("c.yaml", "trainer: {max_epochs: 7, fast: true}\nlr: 1e-3\nname: x\n"),
        ("c.json", '{"trainer": {"max_epochs": 7, "fast": true}, "lr": 0.001, "name": "x"}'),
        ("c.toml", 'lr = 1e-3\nname = "x"\n[trainer]\nmax_epochs = 7\nfast = true\n'),
    ],
)
@pytest.mark.parametrize("given", ["--config {}", "--config={}", "config={}", "-c {}", "{}"])
def test_a_file_that_the_command_names(tmp_path: Path, name: str, text: str, given: str) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / name).write_text(text)
    command = ["python", "train.py", *given.format(f"conf/{name}").split()]
    settings = settings_of(tmp_path, command)
    assert settings == {"trainer.max_epochs": 7.0, "lr": 0.001}
    assert totals_of(command, settings).epochs == 7
    assert totals_of(["bash", "-c", " ".join(command)], settings).epochs == 7


SPACY = """
[system]
seed = 3
[training]
seed = ${system.seed}
max_epochs = 0
max_steps = ${vars.steps}
patience = 1600
[vars]
steps = 1000
[training.batcher.size]
@schedules = "compounding.v1"
start = 100
"""


def test_a_configuration_of_sections_and_what_stands_under_another_name(tmp_path: Path) -> None:
    (tmp_path / "config.cfg").write_text(SPACY)
    command = ["python", "-m", "spacy", "train", "config.cfg", "--output", "o"]
    settings = settings_of(tmp_path, command)
    assert settings["training.seed"] == 3.0
    assert settings["training.batcher.size.start"] == 100.0
    assert totals_of(command, settings) == Totals(None, 1000, stops_early=True)
    write(tmp_path, c="trainer: {max_epochs: '${n}', lr: '${..lr}'}\nn: ${m.n}\nm: {n: 7}\n")
    settings = settings_of(tmp_path, ["python", "t.py", "c.yaml"])
    assert settings == {"trainer.max_epochs": 7.0, "n": 7.0, "m.n": 7.0}


@pytest.mark.parametrize("said", ["${oc.env:N,3}", "${..n}", "${n}0", "${epochs}", "${more}"])
def test_how_many_only_its_program_computes_is_not_said(tmp_path: Path, said: str) -> None:
    write(tmp_path, c=f"n: 3\nepochs: {said}\nwarmup: {{epochs: 5}}\n")
    assert settings_of(tmp_path, ["python", "t.py", "c.yaml"]) == {}


def test_what_the_command_overrides_wins_and_a_later_file(tmp_path: Path) -> None:
    write(tmp_path, a="epochs: 3\nlr: 0.1\nseed: 1\n", b="lr: 0.2\nseed: none\n")
    command = "python t.py --config a.yaml --config b.yaml --epochs 9"
    assert configured(tmp_path, command) == {"--epochs": 9.0, "--lr": 0.2}
    assert configured(tmp_path, f"{command} --lr auto") == {"--epochs": 9.0}
    settings = {"trainer.max_epochs": 3.0, "trainer.max_steps": 100.0}
    assert totals_of([], settings) == Totals(3, 100)
    assert totals_of(["--max-steps", "50"], settings) == Totals(None, 50)
    assert totals_of(["--epochs", "auto"], settings) == Totals()
    assert totals_of([], settings | {"callbacks.early_stopping.patience": 5.0}).stops_early
    assert totals_of([], settings | {"second.max_epochs": 4.0}) == Totals(None, 100)


HYDRA = """import hydra

@hydra.main(version_base=None, config_path="../conf", config_name="config")
def main(cfg): ...
"""


@pytest.fixture
def hydra(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text(HYDRA)
    write(
        tmp_path / "conf",
        config="defaults: [base, model: resnet, trainer: default, db@backup: pg, _self_]\n"
        "seed: 1\ntrainer: {max_epochs: 10}\n",
        base="defaults: [optional logger: absent, override hydra/job_logging: stdout]\nextra: 3\n",
        other="defaults: [model: vit]\nmax_epochs: 4\n",
        model__resnet="layers: 18\nwidth: 64\n",
        model__vit="defaults: [resnet]\nlayers: 50\n",
        trainer__default="max_epochs: 5\nmax_steps: 100\n",
        trainer__short="defaults: [default]\nmax_steps: 7\n",
        db__pg="port: 5432\n",
        experiment__big="# @package _global_\ndefaults: [override /model: vit]\n"
        "trainer: {max_epochs: 30}\n",
    )
    return tmp_path


@pytest.mark.parametrize(
    ("overrides", "differs"),
    [
        ("", {}),
        ("trainer.max_epochs=5", {"--trainer.max_epochs": 5.0}),
        ("model=vit trainer=short", {"--model.layers": 50.0, "--trainer.max_steps": 7.0}),
        ("+experiment=big", {"--model.layers": 50.0, "--trainer.max_epochs": 30.0}),
    ],
)
def test_hydra_composes_so(hydra: Path, overrides: str, differs: dict[str, float]) -> None:
    """As hydra-core 1.3.2 prints it for these files."""
    assert configured(hydra, f"python src/train.py {overrides}") == {
        "--seed": 1.0, "--extra": 3.0, "--model.layers": 18.0, "--model.width": 64.0,
        "--trainer.max_epochs": 10.0, "--trainer.max_steps": 100.0, "--backup.port": 5432.0,
    } | differs  # fmt: skip


def test_hydra_by_another_name(hydra: Path) -> None:
    found = {"--max_epochs": 4.0, "--model.layers": 50.0, "--model.width": 64.0}
    assert configured(hydra, "python src/train.py --config-name other") == found
    assert configured(hydra, "python src/train.py -cn other.yaml") == found


@pytest.mark.parametrize("command", ["--multirun seed=1,2", "~model", "--config-name absent"])
def test_what_hydra_composes_in_another_way_is_not_known(hydra: Path, command: str) -> None:
    assert settings_of(hydra, ["python", "src/train.py", *command.split()]) == {}


def test_a_file_that_includes_itself_ends(hydra: Path) -> None:
    write(hydra / "conf", base="defaults: [config]\n")
    assert settings_of(hydra, ["python", "src/train.py"]) == {}


def test_nothing_is_read_but_what_lies_in_the_folder(tmp_path: Path) -> None:
    sent, outside = tmp_path / "sent", tmp_path / "outside.yaml"
    sent.mkdir()
    outside.write_text("epochs: 3\n")
    (sent / "link.yaml").symlink_to(outside)
    (sent / "loop.yaml").symlink_to("loop.yaml")
    os.mkfifo(sent / "pipe.yaml")
    for name in (
        str(outside),
        "../outside.yaml",
        "link.yaml",
        "loop.yaml",
        "pipe.yaml",
        "a\0.yaml",
    ):
        assert settings_of(sent, ["python", "t.py", "--config", name]) == {}
    (sent / "t.py").write_text(HYDRA.replace("../conf", ".."))
    assert settings_of(sent, ["python", "t.py", "--config-name", "outside"]) == {}


@pytest.mark.parametrize(
    "text",
    [
        BOMB,
        "epochs: !!python/object/apply:os.system ['true']\n",
        "[" * 5000,
        "epochs: 3\n" + "# many\n" * 100_000,
        "epochs: 3\n" + "".join(f"k{n}: {n}\n" for n in range(300)),
        "epochs: [3\n",
    ],
)
def test_what_is_no_plain_configuration_says_nothing(tmp_path: Path, text: str) -> None:
    write(tmp_path, c=text)
    assert settings_of(tmp_path, ["python", "t.py", "c.yaml"]) == {}


def test_a_job_takes_what_was_found_and_what_it_says_itself_stays(tmp_path: Path) -> None:
    write(tmp_path, c="epochs: 3\n'a b\\u202e': 4\nbig: 1" + "0" * 39 + "\n")
    job = {"name": "t", "python": "3", "command": ["python", "t.py", "c.yaml"]}
    found = with_training(job, tmp_path)
    assert job_from_document(found).training.settings == {"epochs": 3.0, "big": 1e39}
    said = {**job, "training": {"framework": "x", "settings": {"epochs": 5}}}
    assert with_training(said, tmp_path) == said
    assert job_from_document(said).configuration == {"epochs": 5.0}


def test_what_is_only_asked_about_is_told_as_it_would_be_sent(tmp_path: Path) -> None:
    write(tmp_path, c="epochs: 3\n")
    job = {"name": "t", "python": "3", "command": ["python", "t.py", "c.yaml"]}
    asked = as_if_sent(job | {"workdir": str(tmp_path)})
    assert asked["training"]["settings"] == {"epochs": 3.0}
    assert asked["workdir"] == str(tmp_path)  # nothing was sent
    assert as_if_sent(job) == job
    assert as_if_sent(job | {"workdir": "/not/there"}) == job | {"workdir": "/not/there"}


def test_steps_of_something_else_than_the_training_are_no_total() -> None:
    assert (
        totals_of([], {"diffusion.num_steps": 1000.0, "solver.max_iter": 50.0}).iterations is None
    )
    assert totals_of([], {"diffusion.num_steps": 1000.0, "train.max_steps": 9.0}).iterations == 9
    assert totals_of([], {"max_steps": 7.0}).iterations == 7


def test_no_number_of_a_secret_name_is_kept(tmp_path: Path) -> None:
    write(tmp_path, a="epochs: 3\nwandb: {api_key: 12345}\ndb: {password: 77}\n")
    assert settings_of(tmp_path, ["python", "t.py", "--config", "a.yaml"]) == {"epochs": 3.0}


@pytest.mark.parametrize("defaults", ["5", "true", "[{db: ''}]"])
def test_defaults_that_are_none_say_nothing(tmp_path: Path, defaults: str) -> None:
    (tmp_path / "t.py").write_text("@hydra.main(config_path='c', config_name='a')\ndef main(): 0\n")
    (tmp_path / "c").mkdir()
    (tmp_path / "c/a.yaml").write_text(f"defaults: {defaults}\nepochs: 3\n")
    assert settings_of(tmp_path, ["python", "t.py"]) == {}


ARGPARSE = """
parser.add_argument("-e", "--epochs", type=int, default=14)
parser.add_argument("--batch-size", "-b", default=64)
parser.add_argument("--lr", type=float, default=-1.0)
parser.add_argument("--num_steps", default=128)
parser.add_argument("--name", default="x")
parser.add_argument("--width", default=int(sys.argv[1]))
parser.add_argument("data")
"""


@pytest.mark.parametrize(
    ("given", "epochs", "batch"),
    [
        ("", 14, 64),
        ("-e 6", 6, 64),
        ("-e6 -b 8", 6, 8),
        ("--ep=7", 7, 64),
        ("--epochs 9", 9, 64),
        ("-e many", None, 64),
        ("--max_steps 5", None, 64),
    ],
)
def test_the_options_of_a_script_by_short_names_and_defaults(
    tmp_path: Path, given: str, epochs: int | None, batch: int
) -> None:
    (tmp_path / "t.py").write_text(ARGPARSE)
    command = ["python", "t.py", *given.split()]
    settings = settings_of(tmp_path, command)
    assert totals_of(command, settings).epochs == epochs
    assert settings["batch-size"] == batch
    assert settings["lr"] == -1.0
    assert not {"num_steps", "name", "width", "data"} & settings.keys()


def test_what_follows_in_a_shell_is_another_programs(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text("a.add_argument('-n', '--epochs', default=5)\n")
    for words in ("python t.py && python u.py -n 50", "python t.py ; u -n 50"):
        assert settings_of(tmp_path, ["sh", "-c", words]) == {"epochs": 5.0}


def test_click_declares_options_and_a_file_says_more_of_how_long_than_a_default(
    tmp_path: Path,
) -> None:
    (tmp_path / "t.py").write_text(
        "@click.option('--epochs', '-n', default=5)\n@option('--seed', default=1)\ndef main(): 0\n"
    )
    assert settings_of(tmp_path, ["python", "t.py", "-n", "3"]) == {"epochs": 3.0, "seed": 1.0}
    write(tmp_path, c="max_epochs: 9\n")
    command = ["python", "t.py", "--config", "c.yaml"]
    assert settings_of(tmp_path, command) == {"max_epochs": 9.0, "seed": 1.0}


ARGS = """
@dataclass
class Args:
    total_timesteps: int = 500_000
    \"\"\"total steps of the experiment\"\"\"
    lr: float = 2.5e-4
    name: str = "x"
    layers: list = field(default_factory=list)
    bare: int

class Other:
    total_timesteps: int = 3
"""


@pytest.mark.parametrize(
    "by",
    [
        "args = tyro.cli(Args)",
        "args, = HfArgumentParser((Args,)).parse_args_into_dataclasses()",
        "jsonargparse.auto_cli(Args)",
    ],
)
@pytest.mark.parametrize(
    ("given", "steps"),
    [("", 500_000), ("--total-timesteps 24000", 24_000), ("--total_timesteps=30", 30)],
)
def test_fields_of_a_class_that_become_options(
    tmp_path: Path, by: str, given: str, steps: int
) -> None:
    (tmp_path / "t.py").write_text(ARGS + by + "\n")
    command = ["python", "t.py", *given.split()]
    settings = settings_of(tmp_path, command)
    assert settings == {"total-timesteps": steps, "lr": 2.5e-4}
    assert totals_of(command, settings).iterations == steps
    (tmp_path / "t.py").write_text(ARGS)
    assert settings_of(tmp_path, command) == {}, "that nothing makes options of"


@pytest.mark.parametrize(
    ("text", "epochs"),
    [
        ("EPOCHS = 5\nfor epoch in range(EPOCHS): 0\n", 5),
        ("n_epochs = 5\ndef main():\n for e in tqdm(range(1, n_epochs + 1)): 0\n", 5),
        ("max_iters = 5000\nfor it in range(max_iters): 0\n", None),
        ("EPOCHS = 5\nif full: EPOCHS = 50\nfor epoch in range(EPOCHS): 0\n", None),
        ("EPOCHS = 5\ndef train(EPOCHS):\n for epoch in range(EPOCHS): 0\n", None),
        ("EPOCHS = 5\nfor epoch in range(args.epochs): 0\n", None),
        ("EPOCHS = len(data)\nfor epoch in range(EPOCHS): 0\n", None),
        ("EPOCHS = 5\nexec(open('c.py').read())\nfor epoch in range(EPOCHS): 0\n", None),
        ("EPOCHS = 5\nfor epoch in range(0, EPOCHS): 0\n", 5),
        ("EPOCHS = 5\nfor epoch in range(EPOCHS * K): 0\n", None),
        ("EPOCHS = 5\nfor epoch in range(min(EPOCHS, 3)): 0\n", None),
        ("EPOCHS = 5\nfor epoch in range(0, EPOCHS, 2): 0\n", None),
        ("EPOCHS = 5\nfor epoch in range(args.n or EPOCHS): 0\n", None),
        ("EPOCHS = 5\nfrom local import EPOCHS\nfor epoch in range(EPOCHS): 0\n", None),
        ("EPOCHS = 5\nfrom local import *\nfor epoch in range(EPOCHS): 0\n", None),
        ("EPOCHS = 5\nvars()['EPOCHS'] = 9\nfor epoch in range(EPOCHS): 0\n", None),
        ("MAX_STEPS = 5\nfor game in games:\n for t in range(MAX_STEPS): 0\n", None),
        ("num_steps = 5\nfor step in range(num_steps): 0\n", None),
        ("STEPS = 5\nfor step in range(STEPS): 0\n", None),
    ],
)
def test_a_constant_that_a_loop_goes_over(tmp_path: Path, text: str, epochs: int | None) -> None:
    (tmp_path / "t.py").write_text(text)
    settings = settings_of(tmp_path, ["python", "t.py"])
    totals = totals_of(["python", "t.py"], settings)
    assert totals.epochs == epochs
    assert totals.iterations == (5000 if "max_iters" in text else None)


@pytest.mark.parametrize(
    "by",
    [
        "fire.Fire({'a': Args, 'b': other})",
        "fire.Fire(Args)",
        "jsonargparse.CLI([Args, Other])",
        "tyro.cli(Args | Other)",
        "tyro.cli(Args, default=Args(total_timesteps=9))",
        "HfArgumentParser(Args).parse_json_file('c.json')",
    ],
)
def test_what_may_be_another_class_or_default_says_nothing(tmp_path: Path, by: str) -> None:
    (tmp_path / "t.py").write_text(f"{ARGS}{by}\n")
    command = ["python", "t.py"]
    assert totals_of(command, settings_of(tmp_path, command)).iterations is None


@pytest.mark.parametrize("by", ["fire.Fire(main)", "typer.run(main)"])
def test_parameters_of_a_function_that_become_options(tmp_path: Path, by: str) -> None:
    (tmp_path / "t.py").write_text(
        f"def main(path, epochs=10, *, seed: int = 1, name='x', more): 0\n{by}\n"
    )
    assert settings_of(tmp_path, ["python", "t.py", "--epochs=3"]) == {"epochs": 3.0, "seed": 1.0}


@pytest.mark.parametrize(
    "text",
    [
        "a.add_argument('--epochs', default=1)\nb.add_argument('--epochs', default=2)\n",
        "a.add_argument('--epochs', default=True)\na.add_argument('-e', default=3)\n",
        "a.add_argument('--epochs', default=" + "[" * 500 + "]" * 500 + ")\n",
        "a.add_argument('--epochs', default=3",
        "a.add_argument('--epochs', default=" + "9" * 400 + "+1j)\n",
        "s = p.add_subparsers()\na.add_argument('--epochs', default=90)\n",
        "a.add_argument('--epochs', default=1)\na.set_defaults(epochs=7)\n",
        "a.add_argument('--max_iter', default=1000)\n",
        "a.add_argument(*names, **more)\n",
        "".join(f"a.add_argument('--a{n}', default={n})\n" for n in range(201)),
    ],
)
def test_a_default_that_cannot_be_told_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "t.py").write_text(text)
    assert settings_of(tmp_path, ["python", "t.py"]) == {}
