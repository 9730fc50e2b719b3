"""Small data for the programs of the zoo, in the place of what they would download."""

import json
import random
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def words(folder: Path, *names: str) -> None:
    """Files of sentences over a small vocabulary, the first the largest."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(names):
        (folder / name).write_text("\n".join(_sentences(250 if number else 2500)) + "\n")


def characters(folder: Path) -> None:
    """NanoGPT's `input.txt`, and what its own `prepare.py` makes of it, which needs numpy.

    Its .gitignore leaves both out: a file names them, so that they travel.
    """
    (folder / "input.txt").write_text("\n".join(_sentences(4000)))
    (folder.parents[1] / ".headwayinclude").write_text("/data/shakespeare_char/*\n")
    subprocess.run([sys.executable, "prepare.py"], cwd=folder, check=True, capture_output=True)


def wheel(folder: Path, package: str) -> None:
    """A wheel of a package that has none at its index, since environments are made of wheels."""
    words = ["wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), package]
    subprocess.run([sys.executable, "-m", "pip", *words], check=True)


def language_model(model: Path, texts: Path) -> None:
    """A tiny GPT-2 with a tokenizer of whole words, and texts as JSON lines."""
    model.mkdir(parents=True, exist_ok=True)
    texts.mkdir(parents=True, exist_ok=True)
    lines = _sentences(600)
    vocabulary = sorted({word for line in lines for word in line.split()})
    ids = {word: number for number, word in enumerate(["<unk>", "<eos>", *vocabulary])}
    special = [
        {"id": ids[each], "content": each, "special": True, "single_word": False, "lstrip": False,
         "rstrip": False, "normalized": False}
        for each in ("<unk>", "<eos>")
    ]  # fmt: skip
    _write(model / "tokenizer.json", {
        "version": "1.0", "added_tokens": special, "normalizer": None, "post_processor": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"}, "decoder": None, "truncation": None,
        "padding": None, "model": {"type": "WordLevel", "vocab": ids, "unk_token": "<unk>"},
    })  # fmt: skip
    _write(model / "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<eos>", "pad_token": "<eos>",
        "unk_token": "<unk>", "model_max_length": 128,
    })  # fmt: skip
    _write(model / "config.json", {
        "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": len(ids),
        "n_positions": 128, "n_embd": 128, "n_layer": 4, "n_head": 4,
        "bos_token_id": 1, "eos_token_id": 1,
    })  # fmt: skip
    # One tensor of the right shape: a model takes what lacks as new.
    header = json.dumps(
        {"transformer.ln_f.bias": {"dtype": "F32", "shape": [128], "data_offsets": [0, 512]}}
    ).encode()
    content = struct.pack("<Q", len(header)) + header + bytes(512)
    (model / "model.safetensors").write_bytes(content)
    (texts / "train.jsonl").write_text("".join(json.dumps({"text": each}) + "\n" for each in lines))


def _write(file: Path, document: object) -> None:
    file.write_text(json.dumps(document))


def _sentences(count: int) -> list[str]:
    """The same sentences each time."""
    dice = random.Random(33)
    known = ["the", "meaning", "of"]
    known += ["".join(dice.choices(_LETTERS, k=dice.randint(2, 8))) for _ in range(1200)]
    often = [1 / (rank + 1) for rank in range(len(known))]
    return [" ".join(dice.choices(known, often, k=dice.randint(6, 24))) for _ in range(count)]


MAKERS: dict[str, Callable[..., None]] = {
    each.__name__: each for each in (words, characters, wheel, language_model)
}
