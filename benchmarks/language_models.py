"""Rows of headway/estimate/data/networks.csv for language models of Hugging Face.

    PYTHONPATH=. python benchmarks/language_models.py > rows.csv      needs torch and transformers

Builds each model from its configuration (the fields of its `config.json`, written down here) on
PyTorch's meta device and runs one sample of so many tokens through it, as `network_table.py` does
for images. Fails where a count of parameters is not the published one within a hundredth.
"""

import csv
import sys
from typing import Any, NamedTuple

import torch
import transformers
from torch.utils.flop_counter import FlopCounterMode
from transformers.pytorch_utils import Conv1D

COUNTED = (torch.nn.Linear, Conv1D)
ON_CPU = frozenset({"XLNet", "Deberta", "DebertaV2"})


class Model(NamedTuple):
    """One model: its names, its class and configuration, and what its authors say of it."""

    names: str
    kind: str
    """Prefix of the library's classes; the task's class follows in `TASKS`."""
    tokens: int
    params: float
    fields: dict[str, Any]


TASKS = {
    **dict.fromkeys(("GPT2", "XLNet"), "LMHeadModel"),
    **dict.fromkeys(("T5", "Bart"), "ForConditionalGeneration"),
    **dict.fromkeys(
        ("GPTNeo", "GPTJ", "GPTNeoX", "OPT", "Bloom", "Llama", "Mistral", "Qwen2", "Gemma", "Phi"),
        "ForCausalLM",
    ),
}
"""Encoders, which are not here, are `Model`: their heads depend on the task."""


def _bert(vocabulary: int, hidden: int, layers: int, heads: int, **more: int) -> dict[str, Any]:
    return {
        "vocab_size": vocabulary,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": 4 * hidden,
        **more,
    }


def _llama(  # noqa: PLR0917 - as in the configurations
    vocabulary: int, hidden: int, layers: int, heads: int, key_heads: int, inner: int, **more: Any
) -> dict[str, Any]:
    own = {"num_key_value_heads": key_heads, "intermediate_size": inner, **more}
    return _bert(vocabulary, hidden, layers, heads) | {"tie_word_embeddings": False} | own


def _gpt2(hidden: int, layers: int, heads: int, **more: int) -> dict[str, Any]:
    return {"n_embd": hidden, "n_layer": layers, "n_head": heads, **more}


def _opt(hidden: int, layers: int, heads: int, **more: Any) -> dict[str, Any]:
    own = {"hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads}
    return {**own, "ffn_dim": 4 * hidden, "word_embed_proj_dim": hidden, **more}


def _t5(hidden: int, layers: int, heads: int, inner: int) -> dict[str, Any]:
    sizes = {"d_model": hidden, "num_layers": layers, "num_heads": heads, "d_ff": inner}
    return {"vocab_size": 32128, **sizes}


def _bart(hidden: int, layers: int, heads: int) -> dict[str, Any]:
    found: dict[str, Any] = {"d_model": hidden}
    for part in ("encoder", "decoder"):
        found |= {f"{part}_layers": layers, f"{part}_attention_heads": heads}
        found |= {f"{part}_ffn_dim": 4 * hidden}
    return found


ROBERTA = {"max_position_embeddings": 514, "type_vocab_size": 1}
TIED = {"tie_word_embeddings": True}
DISTIL = {"dim": 768, "n_layers": 6, "n_heads": 12, "hidden_dim": 3072}
DEBERTA = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "type_vocab_size": 0}
DEBERTA_3 = {"position_buckets": 256, "norm_rel_ebd": "layer_norm", "share_att_key": True}
DEBERTA_3 |= {"position_biased_input": False}
MODELS = (
    Model("bert-base bert-base-chinese bert-base-multilingual", "Bert", 256, 109.5e6,
          _bert(30522, 768, 12, 12)),
    Model("bert-large bert-large-wwm bert-large-whole-word-masking", "Bert", 256, 335.1e6,
          _bert(30522, 1024, 24, 16)),
    Model("all-minilm-l6-v2 minilm-l6-h384", "Bert", 256, 22.7e6,
          _bert(30522, 384, 6, 12)),
    Model("distilbert-base distilbert", "DistilBert", 256, 66.4e6, DISTIL),
    Model("roberta-base", "Roberta", 256, 124.6e6, _bert(50265, 768, 12, 12, **ROBERTA)),
    Model("roberta-large", "Roberta", 256, 355.4e6, _bert(50265, 1024, 24, 16, **ROBERTA)),
    Model("distilroberta-base", "Roberta", 256, 82.1e6, _bert(50265, 768, 6, 12, **ROBERTA)),
    Model("xlm-roberta-base xlmr-base", "XLMRoberta", 256, 278.0e6,
          _bert(250002, 768, 12, 12, **ROBERTA)),
    Model("xlm-roberta-large xlmr-large", "XLMRoberta", 256, 559.9e6,
          _bert(250002, 1024, 24, 16, **ROBERTA)),
    Model("albert-base-v2 albert-base", "Albert", 256, 11.7e6,
          _bert(30000, 768, 12, 12, embedding_size=128)),
    Model("electra-base electra-base-discriminator", "Electra", 256, 108.9e6,
          _bert(30522, 768, 12, 12, embedding_size=768)),
    Model("electra-small electra-small-discriminator", "Electra", 256, 13.5e6,
          _bert(30522, 256, 12, 4, embedding_size=128)),
    Model("deberta-base", "Deberta", 256, 138.6e6, _bert(50265, 768, 12, 12) | DEBERTA),
    Model("deberta-v3-base", "DebertaV2", 256, 183.8e6,
          _bert(128100, 768, 12, 12) | DEBERTA | DEBERTA_3),
    Model("xlnet-base", "XLNet", 256, 117.3e6,
          {"vocab_size": 32000, "d_model": 768, "n_layer": 12, "n_head": 12, "d_inner": 3072}),
    Model("xlnet-large", "XLNet", 256, 361.3e6,
          {"vocab_size": 32000, "d_model": 1024, "n_layer": 24, "n_head": 16, "d_inner": 4096}),
    Model("gpt2 gpt2-small gpt2-117m gpt2-124m", "GPT2", 1024, 124.4e6, _gpt2(768, 12, 12)),
    Model("gpt2-medium", "GPT2", 1024, 354.8e6, _gpt2(1024, 24, 16)),
    Model("gpt2-large", "GPT2", 1024, 774.0e6, _gpt2(1280, 36, 20)),
    Model("gpt2-xl", "GPT2", 1024, 1557.6e6, _gpt2(1600, 48, 25)),
    Model("distilgpt2", "GPT2", 1024, 81.9e6, _gpt2(768, 6, 12)),
    Model("cerebras-gpt-111m", "GPT2", 1024, 111.1e6, _gpt2(768, 10, 12, n_positions=2048)),
    Model("gpt-neo-125m", "GPTNeo", 1024, 125.2e6,
          {"hidden_size": 768, "num_layers": 12, "num_heads": 12, "intermediate_size": 3072,
           "attention_types": [[["global", "local"], 6]]}),
    Model("gpt-neo-1.3b", "GPTNeo", 1024, 1315.6e6, {}),
    Model("gpt-j-6b", "GPTJ", 1024, 6050.9e6, {}),
    *(Model(f"pythia-{size}", "GPTNeoX", 1024, params, _bert(words, hidden, layers, heads))
      for size, params, words, hidden, layers, heads in (
          ("70m", 70.4e6, 50304, 512, 6, 8), ("160m", 162.3e6, 50304, 768, 12, 12),
          ("410m", 405.3e6, 50304, 1024, 24, 16), ("1b", 1011.8e6, 50304, 2048, 16, 8),
          ("1.4b", 1414.6e6, 50304, 2048, 24, 16), ("2.8b", 2775.2e6, 50304, 2560, 32, 32),
          ("6.9b", 6857.3e6, 50432, 4096, 32, 32))),
    Model("opt-125m", "OPT", 1024, 125.2e6, _opt(768, 12, 12)),
    Model("opt-350m", "OPT", 1024, 331.2e6,
          _opt(1024, 24, 16, word_embed_proj_dim=512, do_layer_norm_before=False)),
    Model("opt-1.3b", "OPT", 1024, 1315.8e6, _opt(2048, 24, 32)),
    Model("opt-2.7b", "OPT", 1024, 2651.6e6, _opt(2560, 32, 32)),
    Model("opt-6.7b", "OPT", 1024, 6658.5e6, _opt(4096, 32, 32)),
    Model("bloom-560m", "Bloom", 1024, 559.2e6,
          {"vocab_size": 250880, "hidden_size": 1024, "n_layer": 24, "n_head": 16}),
    Model("bloom-1b1", "Bloom", 1024, 1065.3e6,
          {"vocab_size": 250880, "hidden_size": 1536, "n_layer": 24, "n_head": 16}),
    Model("llama-2-7b llama-7b llama2-7b", "Llama", 2048, 6738.4e6,
          _llama(32000, 4096, 32, 32, 32, 11008)),
    Model("llama-2-13b llama-13b llama2-13b", "Llama", 2048, 13015.9e6,
          _llama(32000, 5120, 40, 40, 40, 13824)),
    Model("llama-2-70b llama2-70b", "Llama", 2048, 68976.6e6,
          _llama(32000, 8192, 80, 64, 8, 28672)),
    Model("llama-3-8b llama-3.1-8b meta-llama-3-8b meta-llama-3.1-8b", "Llama", 2048, 8030.3e6,
          _llama(128256, 4096, 32, 32, 8, 14336)),
    Model("llama-3.2-1b", "Llama", 2048, 1235.8e6,
          _llama(128256, 2048, 16, 32, 8, 8192, **TIED)),
    Model("llama-3.2-3b", "Llama", 2048, 3212.7e6,
          _llama(128256, 3072, 28, 24, 8, 8192, head_dim=128, **TIED)),
    Model("tinyllama-1.1b tinyllama", "Llama", 2048, 1100.0e6,
          _llama(32000, 2048, 22, 32, 4, 5632)),
    Model("mistral-7b mistral-7b-v0.1 mistral-7b-v0.2 mistral-7b-v0.3", "Mistral", 2048, 7241.7e6,
          _llama(32000, 4096, 32, 32, 8, 14336)),
    Model("qwen2-0.5b qwen2.5-0.5b", "Qwen2", 2048, 494.0e6,
          _llama(151936, 896, 24, 14, 2, 4864, **TIED)),
    Model("qwen2-1.5b qwen2.5-1.5b", "Qwen2", 2048, 1543.7e6,
          _llama(151936, 1536, 28, 12, 2, 8960, **TIED)),
    Model("qwen2-7b qwen2.5-7b", "Qwen2", 2048, 7615.6e6,
          _llama(152064, 3584, 28, 28, 4, 18944)),
    Model("gemma-2b", "Gemma", 2048, 2506.2e6,
          _llama(256000, 2048, 18, 8, 1, 16384, head_dim=256, **TIED)),
    Model("phi-2", "Phi", 2048, 2779.7e6, _llama(51200, 2560, 32, 32, 32, 10240)),
    Model("t5-small", "T5", 512, 60.5e6, _t5(512, 6, 8, 2048)),
    Model("t5-base", "T5", 512, 222.9e6, _t5(768, 12, 12, 3072)),
    Model("t5-large", "T5", 512, 737.7e6, _t5(1024, 24, 16, 4096)),
    Model("bart-base", "Bart", 512, 139.4e6, _bart(768, 6, 12)),
    Model("bart-large", "Bart", 512, 406.3e6, _bart(1024, 12, 16)),
)  # fmt: skip


def facts(model: Model) -> tuple[float, int, int, int]:
    """Multiply-adds, parameters, activations and layers of *model* for one sample."""
    config = getattr(transformers, f"{model.kind}Config")(**model.fields)
    # On the meta device nothing is allocated; some models look into their tensors on the way.
    with torch.device("cpu" if model.kind in ON_CPU else "meta"):
        config._attn_implementation = "eager"  # noqa: SLF001 - a fused one is not counted
        built = getattr(transformers, model.kind + TASKS.get(model.kind, "Model"))(config)
        built.eval()
        outputs: list[int] = []
        for module in built.modules():
            if isinstance(module, COUNTED):
                module.register_forward_hook(lambda _, __, out: outputs.append(out.numel()))
        ids = torch.zeros(1, model.tokens, dtype=torch.long)
        more = {"decoder_input_ids": ids} if model.kind in {"T5", "Bart"} else {}
        with FlopCounterMode(display=False) as counter:
            built(input_ids=ids, **more)
    params = sum(each.numel() for each in built.parameters())
    return counter.get_total_flops() / 2, params, sum(outputs), len(outputs)


def main() -> None:
    """Print a row for each model."""
    table = csv.writer(sys.stdout, lineterminator="\n")
    for model in MODELS:
        flops, params, activations, layers = facts(model)
        name, *also = model.names.split()
        if abs(params / model.params - 1) > 0.01:
            raise SystemExit(f"{name}: {params:.5g} parameters, not {model.params:.5g}")
        numbers = [f"{each:.4g}" for each in (flops, params, activations)]
        source = f"counted: transformers {transformers.__version__}, by its configuration"
        table.writerow([name, *numbers, layers, " ".join(also), source, model.tokens])


if __name__ == "__main__":
    main()
