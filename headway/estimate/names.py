"""Product names of GPUs and names of networks, read word by word.

Makers, clouds and data sets write one GPU in many ways (``NVIDIA GeForce RTX
4070 Ti SUPER``, ``rtx4070ti-super``) and two GPUs alike but for one word (``H100
PCIe``, ``H100 NVL``). So a name is taken apart into whole words, and two names
mean the same only where no word is left over that could make a difference.
"""

import re

_NOISE = re.compile(
    "nvidia|tesla|quadro|geforce|graphics|gpu|device|the|corporation|generation|lovelace|edition"
    "|with|design|card|accelerator|tensor|core"
)
_MAKERS = re.compile(r"(nvidia|tesla|quadro|geforce|rtx|gtx|titan)(.+)")
"""Written in one piece with what follows, as in ``rtx2080ti``."""
_SUFFIXES = re.compile(r"([0-9]{3,4})((?:ti|super|ada|laptop|mobile|s|d)+)")
_FORMS = re.compile(r"([a-z]+[0-9]+s?)(sxm[0-9]?|pcie|nvl)")
_SUFFIX = re.compile(r"ti|super|ada|laptop|mobile|s|d")
_SAME = {"mobile": "laptop", "notebook": "laptop", "pci": "pcie"}
_MEMORY = re.compile(r"(?<![a-z0-9])(?:([0-9]+) ?gi?b|([0-9]{2,}) ?g)(?![a-z0-9])")
_GEFORCE = ((re.compile(r"10[5-8]0|16[56]0"), "gtx"), (re.compile(r"[2-5]0[5-9]0"), "rtx"))
"""Numbers that only GeForce has, as people write them: ``3090``."""

_ASIDE = re.compile(
    "squad|imagenet|imagenet1k|ilsvrc2012|uncased|cased|finetuned?|finetuning|pretrain|pretrained"
    "|pretraining|train|training|trainer|amp|fp16|fp32|bf16|tf32|pytorch|torch|torchvision"
    "|tensorflow|tf|keras|jax|flax|mxnet|paddle|hf|timm|instruct|chat|deduped"
)
"""Words of a network's name that say what it is trained on or with, not what it is."""


_WEIGHTS = re.compile(r"\.[a-z][a-z0-9_]*$")
"""What timm writes behind a network's name: how its weights were trained."""


def gpu_words(product: str) -> tuple[str, ...]:
    """What *product* says of the GPU, a word each, in its order and without what all have."""
    text = re.sub(r"max-?q", "maxq", product.lower().replace("_", " "))
    text = _MEMORY.sub(lambda size: f"{size[1] or size[2]}gb", text)
    written = re.findall(r"[a-z0-9]+", text)
    words = [part for word in written for part in _parts(word)]
    words = [_SAME.get(word, word) for word in words if not _NOISE.fullmatch(word)]
    for number, series in _GEFORCE:
        if not {"rtx", "gtx"} & set(words) and any(map(number.fullmatch, words)):
            words.insert(0, series)
    return tuple(dict.fromkeys(words or written))


def _parts(word: str) -> list[str]:
    """*word* without what is written in one piece with it."""
    if glued := _MAKERS.fullmatch(word):
        return [glued[1], *_parts(glued[2])]
    if glued := _FORMS.fullmatch(word):
        return [glued[1], glued[2]]
    if glued := _SUFFIXES.fullmatch(word):
        said = {"s": "super"}
        return [glued[1], *(said.get(each, each) for each in _SUFFIX.findall(glued[2]))]
    return [word]


def plain_network(network: str) -> str:
    """*network* as ``resnet50``, however it is hyphenated: what is the same is spelt the same."""
    return re.sub(r"[^a-z0-9]", "", network.lower()) or network.lower()


def network_spellings(network: str) -> tuple[str, ...]:
    """Spellings under which a table may know *network*, the whole name first.

    ``google-bert/bert-base-uncased`` is a ``bert-base`` of somebody's, and
    ``bert_base_squad`` one with a task; ``distilbert-base`` is another network.
    ``timm/resnet50.a1_in1k`` is a ``resnet50`` with weights of that name.
    """
    own = network.lower().rpartition("/")[2]
    names = dict.fromkeys((network.lower(), own, _WEIGHTS.sub("", own)))
    words = [re.findall(r"[a-z0-9]+", name) for name in names]
    bare = ["".join(word for word in each if not _ASIDE.fullmatch(word)) for each in words]
    return tuple(dict.fromkeys([*map(plain_network, names), *filter(None, bare)]))
