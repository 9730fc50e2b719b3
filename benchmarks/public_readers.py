"""Public tables of training times, each in its own form, as rows in the columns of traces.

A reader takes the files of one repository, as pairs of path and text, and what public_tables.yaml
says of them besides; docs/estimates.md says what the columns mean. Times that a table gives twice
are kept twice: they were measured twice.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import unescape
from pathlib import PurePosixPath
from statistics import median
from typing import Any

from markdown_it import MarkdownIt

from headway.units import GIB

Files = Iterable[tuple[str, str]]
Row = dict[str, Any]
_NUMBER = re.compile(r"[0-9][0-9,]*\.?[0-9]*")
_FP32, _HALF = (
    re.compile("tf32|fp32|single|float", re.IGNORECASE),
    re.compile("mixed|fp16|bf16|half", re.IGNORECASE),
)
_ONE_NODE = 8
"""GPUs of a node where the table says how many there were in all, and nothing of nodes."""


def training_throughputs(files: Files, networks: Mapping[str, str]) -> Iterator[Row]:
    """NVIDIA's DeepLearningExamples: throughput by GPUs, batch of each, and precision.

    A step that sums gradients counts for as many iterations as it has batches.
    """
    for path, text in files:
        for heading, table in tables_of(text) if path in networks else ():
            chip = re.search("A100|DGX-[12]", heading)
            memory = re.search("(16|32|40|80) ?G", heading)
            if not (chip and memory) or re.search(
                "inference|multi-node|accuracy", heading, re.IGNORECASE
            ):
                continue
            gpu = f"{'A100' if chip[0] == 'A100' else 'V100'} {memory[1]}GB"
            for cells in table:
                told = {"network": networks[path], "gpu_type": gpu, "framework": _framework(path)}
                yield from _throughputs(cells, told)


def _throughputs(cells: Mapping[str, str], told: Row) -> Iterator[Row]:
    """A row for each precision of a line of a table that tells GPUs and batch."""
    gpus = _number(next((cells[n] for n in cells if re.search("^gpus", n, re.IGNORECASE)), ""))
    batch = next((n for n in cells if re.search(r"^batch size ?/ ?gpu", n, re.IGNORECASE)), "")
    length = _number(
        next((cells[n] for n in cells if re.search("^sequence", n, re.IGNORECASE)), "")
    )
    sizes = [float(n.replace(",", "")) for n in _NUMBER.findall(cells.get(batch, ""))]
    half, full = _HALF.search(batch), _FP32.search(batch)
    if len(sizes) == 2 and half and full and half.start() < full.start():
        sizes.reverse()
    if not gpus or len(sizes) not in {1, 2} or (len(sizes) == 2 and not (half and full)):
        return
    for name, cell in cells.items():
        speed = _number(cell)
        if speed and re.match("throughput(?!.*speed)", name, re.IGNORECASE):
            size = sizes[-1 if _HALF.search(name) else 0]
            yield {
                **told,
                "gpus": int(gpus),
                "batch_size": int(size),
                "samples_per_s": speed,
                "precision": ("bf16" if "bf16" in name.lower() else "amp")
                if _HALF.search(name)
                else "fp32",
                **({"--max-seq-length": length} if length else {}),
            }


def milliseconds_by_network(files: Files, batch_size: int) -> Iterator[Row]:
    """ryujaehun/pytorch-gpu-benchmark: a column of milliseconds for each torchvision network."""
    for path, text in files:
        name = PurePosixPath(path).name
        told = re.match(r"(.+?)(?:_([0-9])_gpus_)?_(single|float|half)_model_train", name)
        if told is None or ")" in name:  # nothing says what (1) and (2) are
            continue
        networks, *lines = [line.split(",") for line in text.splitlines() if line]
        for at, network in enumerate(networks):
            yield {
                "network": network,
                "gpu_type": told[1],
                "gpus": int(told[2] or 1),
                "batch_size": batch_size,
                "iteration_s": median(float(line[at]) for line in lines) / 1e3,
                "precision": "fp16" if told[3] == "half" else "fp32",
                "framework": "pytorch",
            }


def torch7_passes(files: Files) -> Iterator[Row]:
    """jcjohnson/cnn-benchmarks: passes forward and back by Torch 7, with cuDNN."""
    for _, text in files:
        told = json.loads(text)
        options = told["opt"]
        if told.get("gpu_name") and options["use_cudnn"]:
            yield {
                "network": PurePosixPath(options["model_t7"]).stem,
                "gpu_type": told["gpu_name"],
                "gpus": 1,
                "batch_size": options["batch_size"],
                "iteration_s": median(told["total_times"]),
                "framework": f"torch7-cudnn{str(told['cudnn_version'])[0]}",
            }


def mpt_throughputs(files: Files) -> Iterator[Row]:
    """mosaicml/llm-foundry: MPT's sizes at several lengths; 8 GPUs on a node."""
    for _, text in files:
        for _, table in tables_of(text):
            for cells in table:
                if not re.fullmatch("(amp_)?(bf16|fp16)", cells.get("Precision", "")):
                    continue
                gpus, length = int(cells["# GPUs"]), int(cells["SeqLen (T)"])
                params = int(next(v for n, v in cells.items() if n.startswith("NumParams")))
                yield {
                    "network": f"mpt-{cells['Model']}",
                    "gpu_type": cells["GPU"],
                    "gpus": gpus,
                    "nodes": max(1, gpus // _ONE_NODE),
                    "batch_size": int(cells["GlobalBatchSize"]) // gpus,
                    "samples_per_s": float(cells["Throughput (T/s)"]) / length,
                    "precision": cells["Precision"].removeprefix("amp_"),
                    "framework": "composer",
                    "params": params,
                    "flops": params * length,
                    "--max-seq-length": length,
                    "--microbatch": int(cells["MicroBatchSize"]),
                    "--recompute": int(cells["Activation Checkpointing"] == "True"),
                }


def measured_latencies(files: Files, networks: Mapping[str, str]) -> Iterator[Row]:
    """sitar-lab/NeuSight: milliseconds forward and back of one GPU, network-train-tokens-batch."""
    for path, text in files:
        *_, gpu, name = PurePosixPath(path).parts
        told = re.fullmatch(r"(\w+)-train-([0-9]+)-([0-9]+)\.json", name)
        if told and told[1] in networks:
            yield {
                "network": networks[told[1]],
                "gpu_type": gpu,
                "gpus": 1,
                "batch_size": int(told[3]),
                "iteration_s": json.loads(text)["e2e_latency"] / 1e3,
                "framework": "pytorch",
                "--max-seq-length": int(told[2]),
            }


def detectors(
    files: Files, gpu_type: str, framework: str, batch_size: int | None = None
) -> Iterator[Row]:
    """Model zoos of Detectron and its heirs: seconds and GPU memory of a step on eight GPUs."""
    for _, text in files:
        for heading, table in [*tables_of(text), *html_tables_of(text)]:
            for cells in table:
                plain = {re.sub(r"[\s/]+", "", name.lower()): cell for name, cell in cells.items()}
                seconds = _number(plain.get("traintime(siter)", ""))
                memory = _number(plain.get("trainmem(gb)", ""))
                size = batch_size or _number(plain.get("imgpu", ""))
                if seconds and size:
                    kind = plain.get("type") or heading
                    yield {
                        "network": f"{kind} {plain.get('backbone') or plain['name']}",
                        "gpu_type": gpu_type,
                        "gpus": 8,
                        "batch_size": int(size),
                        "iteration_s": seconds,
                        "framework": framework,
                        **({"gpu_peak_bytes": int(memory * GIB)} if memory else {}),
                    }


def mlperf_results(files: Files, networks: Mapping[str, Sequence[Any]]) -> Iterator[Row]:
    """MLPerf Training, closed division: the first run of each entry, where it reached its goal.

    Precision is that of a submission on tensor cores, which logs do not tell. The time holds that
    of the evaluations.
    """
    texts = dict(files)
    for path, text in texts.items():
        team, _, system, benchmark, _ = ("/" * 4 + path).split("/")[-5:]
        told = texts.get(f"{team}/systems/{system}.json")
        if told is None or benchmark not in networks:
            continue
        network, *epoch = networks[benchmark]
        run, about = _logged(text), json.loads(told)
        samples = run.get("epoch_num", 0.0) * epoch[0] if epoch else run.get("train_samples", 0.0)
        nodes, each = (int(_number(str(about.get(name))) or 0) for name in _NODES)
        batch = run.get("global_batch_size")
        if run.get("status") == "success" and samples and batch and nodes * each:
            yield {
                "network": network,
                "gpu_type": re.sub(r"\(.*?\)", "", str(about["accelerator_model_name"])).strip(),
                "gpus": nodes * each,
                "nodes": nodes,
                "batch_size": max(1, round(batch / (nodes * each))),
                "runtime_s": (run["run_stop"] - run["run_start"]) / 1e3,
                "iterations": max(1, round(samples / batch)),
                "precision": "amp",
                "framework": _framework(str(about.get("framework"))),
            }


_SIZES = ("global_batch_size", "train_samples")
_NODES = ("number_of_nodes", "accelerators_per_node")


def _logged(text: str) -> dict[str, Any]:
    """What a log of MLPerf says of a run: milliseconds of its ends, sizes, the last epoch."""
    found: dict[str, Any] = {}
    for line in re.findall(r":::MLLOG (\{.*\})", text):
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        key, more = entry["key"], entry.get("metadata") or {}
        if key in {"run_start", "run_stop"}:
            found[key] = entry["time_ms"]
            found["status"] = more.get("status")
        elif key in _SIZES and isinstance(entry["value"], int | float):
            found[key] = float(entry["value"])
        elif key == "eval_accuracy" and "epoch_num" in more:
            found["epoch_num"] = float(more["epoch_num"])
    return found


READERS: dict[str, Callable[..., Iterator[Row]]] = {
    each.__name__: each
    for each in (
        *(training_throughputs, milliseconds_by_network, torch7_passes, mpt_throughputs),
        *(measured_latencies, detectors, mlperf_results),
    )
}


def tables_of(text: str) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """The tables of a Markdown text, each below its heading, as one mapping for each line."""
    heading, rows, cells = "", [], []
    tokens = MarkdownIt().enable("table").parse(text)
    for before, token in zip([None, *tokens], tokens, strict=False):
        if token.type == "inline" and before is not None:
            if before.type == "heading_open":
                heading = token.content
            elif before.type in {"th_open", "td_open"}:
                cells.append(re.sub(r"[*\\]", "", token.content).strip())
        elif token.type == "tr_close":
            rows.append(cells)
            cells = []
        elif token.type == "table_close":
            header, *lines = rows
            yield heading, [dict(zip(header, line, strict=False)) for line in lines]
            rows = []


def html_tables_of(text: str) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """The same of tables that are written as HTML, whose headers need not be in a row."""
    above, *rest = text.split("<table>")
    for each in rest:
        heading = re.findall("^#+ *(.*?):? *$", above, re.MULTILINE)[-1:]
        table, _, above = each.partition("</table>")
        header = [_plain(cell) for cell in re.findall(r"<th\b.*?>(.*?)</th>", table, re.DOTALL)]
        lines = [
            [_plain(cell) for cell in re.findall(r"<td\b.*?>(.*?)</td>", row, re.DOTALL)]
            for row in re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)
        ]
        yield "".join(heading), [dict(zip(header, line, strict=False)) for line in lines if line]


def _plain(cell: str) -> str:
    return unescape(re.sub(r"<.*?>", " ", cell)).replace("\xa0", " ").strip()


def _number(cell: str) -> float | None:
    """The first number of *cell*, such as 22.59M or 1,024; None where there is none."""
    found = re.search(rf"({_NUMBER.pattern}) ?([kKM]?)(?![a-zA-Z])", cell)
    times = {"k": 1e3, "K": 1e3, "M": 1e6}
    return float(found[1].replace(",", "")) * times.get(found[2], 1.0) if found else None


def _framework(words: str) -> str:
    """Which framework *words* name, such as a folder or a container."""
    known = ("pytorch", "tensorflow", "mxnet", "paddle", "hugectr", "jax")
    return next((each for each in known if each in words.lower()), "")
