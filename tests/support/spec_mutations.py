"""Good jobs made at random, and bad ones: a good job with one thing in it that is not allowed.

Each mutation knows by itself which field it spoils, so that a refusal can be held against it.
"""

import json
import random
import string
from collections.abc import Callable, Iterator
from typing import Any

from tests.support.bad_specs import Spec
from tests.support.bad_values import BROKEN

Job = dict[str, Any]
Mutation = Callable[[random.Random, Job], str]
"""Spoils one field of the job and returns its name."""

_LETTERS = string.ascii_lowercase
_INVISIBLE = "\u202e\u200b\u2066\u0007\u001b\u009b\ufeff\u2028"
_KEYS = ["name", "image", "command", "resources", "training", "dataset", "retries", "outputs"]


def good_jobs(seed: int) -> Iterator[Job]:
    """Jobs that the site of `bad_specs` could run, without end."""
    rng = random.Random(seed)
    while True:
        gpus = rng.choice([0, 0, 1, 2, 4])
        resources = {
            "gpus": gpus,
            "host_memory": rng.choice(["auto", f"{rng.randint(8, 30_000)}MiB", "1.5GiB"]),
            "cpus": rng.choice([0.5, 1, 2.0, 7]),
            "shm": f"{rng.randint(6, 900)}MiB",
            "disk": f"{rng.randint(0, 9)}GiB",
        }
        if gpus:
            resources |= {"gpu_memory": f"{rng.randint(1, 70)}GiB", "gpu_type": "A100"}
        samples = rng.randint(1, 10**6)
        yield {
            "name": _word(rng),
            "image": rng.choice(["python:3.11", "registry.example.org:5000/a/b:v1", "ubuntu"]),
            "command": ["python", "train.py", f"--lr={rng.random()}", "ünï;rm\n$HOME"],
            "resources": resources,
            "training": {
                "network": f"net-{rng.randint(0, 99)}",
                "samples": samples,
                "batch_size": rng.randint(1, samples),
                "epochs": rng.randint(1, 500),
                "precision": rng.choice(["fp32", "fp16", "amp", "bf16"]),
            },
            "max_runtime": f"{rng.randint(1, 700)}h{rng.randint(1, 59)}m",
            "stop_grace": f"{rng.randint(1, 600)}s",
            "retries": rng.randint(0, 10),
            "preemptible": rng.random() < 0.5,
            "ports": rng.sample(range(1024, 65_536), rng.randint(0, 5)),
            "env": {
                _word(rng, "bdfghjlmnqvz").upper(): _word(rng) for _ in range(rng.randint(0, 5))
            },
            "outputs": rng.sample(["*.pt", "plots/**", "a b/*.png"], rng.randint(0, 3)),
            "progress": r"step (?P<iteration>\d+)/(?P<total>\d+)",
        }


def bad_specs(seed: int, number: int) -> Iterator[Spec]:
    """*number* bad jobs; the same for the same *seed*."""
    rng = random.Random(seed)
    jobs = good_jobs(seed)
    for _ in range(number):
        job = next(jobs)
        if rng.random() < 0.04:
            yield _broken(rng, job)
        else:
            field = rng.choice(_MUTATIONS)(rng, job)
            yield Spec(json.dumps(job, ensure_ascii=rng.random() < 0.5), field)


def _word(rng: random.Random, letters: str = _LETTERS) -> str:
    """A word; of some *letters* only where others could spell PWD or TOKEN by chance."""
    return "x" + "".join(rng.choices(letters + string.digits, k=rng.randint(1, 20)))


def _with(rng: random.Random, word: str, characters: str) -> str:
    at = rng.randint(0, len(word))
    return word[:at] + rng.choice(characters) + word[at:]


# --- what is wrong with a value ---


def _no_number(rng: random.Random) -> Any:
    return rng.choice([True, "1", [], {}, "1" * rng.randint(1, 50), "nan", "٣", [rng.random()]])


def _no_size(rng: random.Random) -> Any:
    number, unit = rng.randint(1, 10**6), rng.choice(["KB", "MiB", "g", "TiB"])
    return rng.choice(
        [f"-{number}{unit}", f"{number} gigs", f"{number}", rng.randint(1, 2**20 - 1), True,
         f"{number}{'0' * 30}GiB", f"{number}e400", "inf", "nan", f"{unit}", [f"{number}{unit}"],
         f"{number}{unit};", f"٣{unit}", {}, f"0x{number}{unit}", -number]
    )  # fmt: skip


def _no_duration(rng: random.Random) -> Any:
    number = rng.randint(1, 10**4)
    return rng.choice(
        [number, str(number), f"-{number}h", f"{number}y", f"{number * 400}d", "inf", "nan", "",
         f"{number}h;", "0s", True, [f"{number}h"], f"{number}:00", "1e400s", "٤h"]
    )  # fmt: skip


def _no_whole(rng: random.Random, low: int, high: int) -> Any:
    below, above = rng.randint(-(2**62), low - 1), rng.randint(high + 1, 2**62)
    return rng.choice([below, above, rng.uniform(low, high + 1) + 0.5, _no_number(rng)])


def _no_name(rng: random.Random) -> Any:
    word = _word(rng)
    bad = _INVISIBLE + "\n;<>&'\"/\\ \0ü$`|"
    return rng.choice(
        [_with(rng, word, bad), f"-{word}", f".{word}", word * 33, "", rng.randint(0, 99), [word],
         f"{word}'; DROP TABLE runs;--", f"<img src=x onerror={word}>", f"javascript:{word}"]
    )  # fmt: skip


# --- where it is put ---


def _at(path: str, bad: Callable[[random.Random], Any]) -> Mutation:
    def spoil(rng: random.Random, job: Job) -> str:
        *groups, key = path.split(".")
        place = job
        for group in groups:
            place = place.setdefault(group, {})
        place[key] = bad(rng)
        return path

    return spoil


def _wholes() -> Iterator[Mutation]:
    ranges = {
        "retries": (0, 10), "resources.gpus": (0, 1024), "resources.nodes": (1, 64),
        "training.epochs": (1, 10**12), "training.samples": (1, 10**12),
        "training.data_threads": (0, 4096),
    }  # fmt: skip
    for path, (low, high) in ranges.items():
        yield _at(path, lambda rng, low=low, high=high: _no_whole(rng, low, high))


def _missing(rng: random.Random, job: Job) -> str:
    key = rng.choice(["name", "image", "command"])
    job.pop(key)
    return key


def _unknown(rng: random.Random, job: Job) -> str:
    group = rng.choice(["", "resources", "training"])
    typo = rng.choice(_KEYS) + rng.choice(_LETTERS) if rng.random() < 0.5 else "y" + _word(rng)
    (job[group] if group else job)[typo] = rng.choice([1, "x", None, [], {}])
    return f"{group}.{typo}" if group else typo


def _command(rng: random.Random, job: Job) -> str:
    bad, at = rng.choice(
        [("python train.py", ""), ([], ""), ({}, ""), ([""], "[0]"), (["-c"], "[0]"),
         ([f";{_word(rng)}"], "[0]"), (["python x"], "[0]"), (["sh", rng.randint(0, 9)], "[1]"),
         (["sh", _with(rng, _word(rng), _INVISIBLE)], "[1]"), (["sh", None], "[1]"),
         (["sh", f"hf_{_word(rng)}{'a' * 20}"], "[1]"), (["sh", "x" * 40_000], "[1]")]
    )  # fmt: skip
    job["command"] = bad
    return f"command{at}"


def _env(rng: random.Random, job: Job) -> str:
    word = _word(rng)
    ours = rng.choice(["LD_", "NVIDIA_", "DOCKER_", "PREFECT_", "HEADWAY_"])
    key, value = rng.choice(
        [(f"{ours}{word.upper()}", "x"),
         ("PATH", word), ("A", f"{word}\n{word}"), ("A", rng.choice([True, None, [], {}])),
         (f"{word}_PASSWORD", word), ("A", _with(rng, word, _INVISIBLE)),
         ("A", f"https://{word}:{word}@host/x"), (f"1{word}", "x"), (f"{word}TOKEN_TOKEN", word)]
    )  # fmt: skip
    job["env"][key] = value
    return f"env.{key}"


def _secrets(rng: random.Random, job: Job) -> str:
    job["secrets"] = {"A": rng.choice([_no_name(rng), f"X{_word(rng)}", f"nowhere-{_word(rng)}"])}
    return "secrets.A"


def _ports(rng: random.Random, job: Job) -> str:
    bad = rng.choice([rng.randint(-(10**6), 1023), rng.randint(65_536, 10**9), "6006", True, 1.5])
    twice = rng.random() < 0.2
    job["ports"] = [6006, 6006 if twice else bad]
    return "ports[1]"


def _outputs(rng: random.Random, job: Job) -> str:
    word = _word(rng)
    bad = [f"../{word}", f"{word}/../../x", f"/{word}", f"~{word}", "", f"{word}\\", 5]
    job["outputs"] = ["*", rng.choice([*bad, _with(rng, word, _INVISIBLE)])]
    return "outputs[1]"


def _no_image(rng: random.Random) -> Any:
    word = _word(rng)
    return rng.choice(
        [f"-{word}", f";{word}", f"{word.upper()}", _with(rng, word, _INVISIBLE + " ;$`|&\\\n"), "",
         f"../{word}", f"http://{word}/x", f"{word}@sha256:12", 5, [word], f"{word}:{'t' * 200}",
         "a" * 64, f"{word}//x", f"{word}:"]
    )  # fmt: skip


def _no_uri(rng: random.Random) -> Any:
    word = _word(rng)
    return rng.choice(
        [f"../{word}", f"/data/../{word}", f"/{word}:/host", f"/run/{word}.sock", f"/proc/{word}",
         f"//dev/{word}", f"~/{word}", word, f"ftp://{word}", f"s3://a/%2e%2E/{word}", "", 5, "/",
         f"javascript:{word}", f"zip://a::/{word}", f"https://me:{word}@h/x", f"/sys/{word}",
         f"/{_with(rng, word, _INVISIBLE)}", f"\\\\{word}", "/" + "x" * rng.randint(2000, 4000)]
    )  # fmt: skip


def _no_node_has(rng: random.Random, job: Job) -> str:
    key, value = rng.choice(
        [("host_memory", f"{rng.randint(41, 60_000)}GiB"), ("cpus", rng.randint(8, 4096)),
         ("nodes", rng.randint(2, 64))]
    )  # fmt: skip
    job["resources"] |= {"cpus": 1, "host_memory": "1GiB"} | {key: value}
    return f"resources.{key}"


def _no_gpu_is(rng: random.Random, job: Job) -> str:
    key, value = rng.choice(
        [("gpu_memory", f"{rng.randint(81, 60_000)}GiB"), ("gpu_type", f"H{rng.randint(200, 900)}"),
         ("gpus", rng.randint(5, 1024))]
    )  # fmt: skip
    fits = {"gpus": 1, "gpu_memory": "1GiB", "gpu_type": "", "cpus": 1, "host_memory": "1GiB"}
    job["resources"] |= fits | {key: value}
    return f"resources.{key}"


def _of_somebody_else(rng: random.Random, job: Job) -> str:
    field = rng.choice(["owner", "team"])
    job[field] = _word(rng)
    return field


_MUTATIONS: list[Mutation] = [
    *_wholes(),
    *(_at(path, _no_name) for path in ("name", "team")),
    *(_at(f"resources.{key}", _no_size) for key in ("host_memory", "shm", "disk")),
    *(_at(path, _no_duration) for path in ("max_runtime", "stop_grace")),
    _at("resources.cpus", lambda rng: rng.choice([_no_number(rng), 0, -rng.random(), 4097, 1e308])),
    _at("resources.sharing", lambda rng: rng.choice([_word(rng), 1, True, [], "SHARED"])),
    _at("training.precision", lambda rng: rng.choice([_word(rng), 16, "FP32", ["fp32"]])),
    _at("preemptible", lambda rng: rng.choice(["yes", 1, 0, [], {}, _word(rng)])),
    _at("progress", lambda rng: rng.choice(["(", _word(rng), "(?P<epoch>a)(?=b)", "(?P<epoch>"])),
    _at("dataset.uri", _no_uri),
    _at("image", _no_image),
    _missing, _unknown, _command, _env, _secrets, _ports, _outputs,
    _no_node_has, _no_gpu_is, _of_somebody_else,
]  # fmt: skip


def _broken(rng: random.Random, job: Job) -> Spec:
    """A text that is no job at all, or no text."""
    whole = json.dumps(job)
    cut = whole[: rng.randint(1, len(whole) - 2)]
    twice = f'{whole[:-1]}, "name": "{_word(rng)}"}}'
    raw = whole.encode()
    at = rng.randint(1, len(raw) - 2)
    return rng.choice(
        [Spec(cut, "job"), Spec(twice, "name"), Spec(raw[:at] + b"\xff" + raw[at:], "job"),
         Spec(whole + whole, "job"), Spec(whole.replace("{", "{" * 40, 1), "job"),
         Spec(rng.choice(BROKEN), "job")]
    )  # fmt: skip
