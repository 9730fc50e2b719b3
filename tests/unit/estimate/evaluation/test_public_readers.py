"""Readers of public tables, on a few lines of each as it is published.

The lines are of NVIDIA/DeepLearningExamples (PyTorch/SpeechRecognition/Jasper, Apache-2.0;
TensorFlow2/LanguageModeling/BERT, Apache-2.0), ryujaehun/pytorch-gpu-benchmark (MIT, © 2021 Jaehun
Ryu), jcjohnson/cnn-benchmarks (MIT, © 2016 Justin Johnson), mosaicml/llm-foundry (Apache-2.0),
sitar-lab/NeuSight (MIT, © 2025 Georgia Institute of Technology and Microsoft Corporation),
facebookresearch/maskrcnn-benchmark (MIT, © 2018 Facebook), facebookresearch/detectron2
(Apache-2.0) and mlcommons/training_results_v2.0 (Apache-2.0).
"""

import csv
import io
import json
import subprocess
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from benchmarks.public_readers import READERS, Row
from benchmarks.public_tables import TABLE, files_of
from headway.estimate.trace_files import parse
from headway.units import GIB

JASPER = """\
##### Training performance: NVIDIA DGX-1 (8x V100 32GB)
| Batch size / GPU | GPUs | Throughput - FP32 | Throughput - mixed precision | \
Throughput speedup (FP32 to mixed precision) | Weak scaling - FP32 |
|----:|----:|------:|-------:|-----:|-----:|
|  32 |   8 | 92.44 | 249.00 | 2.69 | 7.57 |
|  64 |   8 |   N/A | 282.68 |  N/A |  N/A |
##### Inference performance: NVIDIA DGX-1 (1x V100 32GB)
| Batch size / GPU | GPUs | Throughput - FP32 |
|----:|----:|------:|
|  64 |   1 | 99.00 |
"""
BERT = """\
##### Pre-training training performance: Single-node on NVIDIA DGX A100 (8x A100 80GB)
| **GPUs** | **Sequence Length** | **Batch size / GPU: mixed precision, TF32** | \
**Throughput - mixed precision** | **Throughput - TF32** |
|:---:|:---:|:---:|---|---|
| 1 | 128 | 312 , 176 | 485.59 | 282.98 |
"""
MILLISECONDS = """\
densenet121,densenet161
146.5,249.8
140.5,252.4
144.9,218.7
"""
TORCH7 = {
    "total_times": [0.2255, 0.2257, 0.2262],
    "gpu_name": "GeForce GTX 1080",
    "opt": {"model_t7": "models/resnets/resnet-101.t7", "batch_size": 16, "use_cudnn": 1},
    "cudnn_version": 5105,
}
MPT = """\
|  Model | SeqLen (T) | # GPUs | GPU | MicroBatchSize | GlobalBatchSize | Throughput (T/s) | \
Precision | Activation Checkpointing | NumParams |
|  --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
|  70b | 2048 | 128 | h100_80gb | 8 | 1024 | 135490 | amp_bf16 | True | 64862437376 |
|  70b | 2048 | 128 | h100_80gb | 8 | 1024 | 135490 | amp_fp8 | True | 64862437376 |
"""
ZOO = """\
backbone | type | lr sched | im / gpu | train mem(GB) | train time (s/iter) | model id
-- | -- | -- | -- | -- | -- | --
R-50-FPN | Mask | 1x | 2 | 5.2 | 0.4536 | [6358792](https://example.org/mask)
"""
ZOO_IN_HTML = """\
#### Faster R-CNN:

<table><tbody>
<th valign="bottom">Name</th>
<th valign="bottom">train<br/>time<br/>(s/iter)</th>
<th valign="bottom">train<br/>mem<br/>(GB)</th>
<!-- ROW: faster_rcnn_R_50_FPN_1x -->
 <tr><td align="left"><a href="configs/x.yaml">R50-FPN</a></td>
<td align="center">0.210</td>
<td align="center">3.0</td>
</tr>
</tbody></table>
"""
LOG = """\
:::MLLOG {"time_ms": 1, "key": "global_batch_size", "value": 1024, "metadata": {}}
:::MLLOG {"time_ms": 1651637838846, "key": "run_start", "value": null, "metadata": {}}
:::MLLOG {"time_ms": 2, "key": "eval_accuracy", "value": 0.76, "metadata": {"epoch_num": 35}}
:::MLLOG {"time_ms": 1651642332474, "key": "run_stop", "metadata": {"status": "STATUS"}}
"""
SYSTEM = {
    "number_of_nodes": "1",
    "accelerators_per_node": "8",
    "accelerator_model_name": "NVIDIA A30 (165W)",
    "framework": "NGC MXNet 22.05",
}
SSD = {"ssd": ["ssd300-resnet34", 117266]}
RESNET = {"resnet": ["resnet50-v1.5", 1281167]}


def read(reader: str, files: dict[str, str], **more: object) -> list[Row]:
    return list(READERS[reader](files.items(), **more))


def test_a_throughput_table_is_read_by_precision_and_without_inference() -> None:
    path = "PyTorch/SpeechRecognition/Jasper/README.md"
    rows = read(
        "training_throughputs", {path: JASPER, "README.md": BERT}, networks={path: "jasper"}
    )
    told = [(r["batch_size"], r["precision"], r["samples_per_s"]) for r in rows]
    assert told == [(32, "fp32", 92.44), (32, "amp", 249.0), (64, "amp", 282.68)]
    assert {(r["network"], r["gpu_type"], r["gpus"], r["framework"]) for r in rows} == {
        ("jasper", "V100 32GB", 8, "pytorch")
    }


def test_two_batch_sizes_go_by_the_order_that_the_header_names() -> None:
    path = "TensorFlow2/LanguageModeling/BERT/README.md"
    rows = read("training_throughputs", {path: BERT}, networks={path: "bert-large"})
    told = {r["precision"]: (r["batch_size"], r["samples_per_s"]) for r in rows}
    assert told == {"amp": (312, 485.59), "fp32": (176, 282.98)}
    assert {(r["--max-seq-length"], r["gpu_type"]) for r in rows} == {(128.0, "A100 80GB")}


def test_two_batch_sizes_without_an_order_tell_nothing() -> None:
    path = "a/README.md"
    text = BERT.replace(": mixed precision, TF32", "")
    assert not read("training_throughputs", {path: text}, networks={path: "bert-large"})


def test_columns_of_milliseconds_are_medians_on_the_gpus_of_the_file_name() -> None:
    files = {
        "results/GeForce RTX 2080 Ti_2_gpus__half_model_train_benchmark.csv": MILLISECONDS,
        "results/TITAN V_double_model_training_benchmark.csv": MILLISECONDS,
        "results/TITAN V_single_model_inference_benchmark.csv": MILLISECONDS,
    }
    first, second = read("milliseconds_by_network", files, batch_size=12)
    assert (first["network"], first["iteration_s"]) == ("densenet121", pytest.approx(0.1449))
    assert (second["gpus"], second["precision"]) == (2, "fp16")


def test_passes_of_torch_count_with_cudnn_alone() -> None:
    without = {**TORCH7, "opt": {**TORCH7["opt"], "use_cudnn": 0}}  # type: ignore[dict-item]
    files = {"outputs/1.json": json.dumps(TORCH7), "outputs/2.json": json.dumps(without)}
    (row,) = read("torch7_passes", files)
    assert row["network"] == "resnet-101"
    assert row["iteration_s"] == 0.2257
    assert row["framework"] == "torch7-cudnn5"


def test_a_throughput_in_tokens_is_one_in_sequences() -> None:
    (row,) = read("mpt_throughputs", {"README.md": MPT})
    assert row["samples_per_s"] == pytest.approx(135490 / 2048)
    assert (row["batch_size"], row["nodes"], row["precision"]) == (8, 16, "bf16")


def test_latencies_go_by_the_name_of_their_file() -> None:
    files = {
        "label/NVIDIA_H100_80GB_HBM3/gpt2_large-train-1024-4.json": '{"e2e_latency": 638.8}',
        "label/NVIDIA_H100_80GB_HBM3/gpt2_large-train-1024-4-tp4.json": '{"e2e_latency": 484.9}',
    }
    (row,) = read("measured_latencies", files, networks={"gpt2_large": "gpt2-large"})
    assert (row["batch_size"], row["--max-seq-length"]) == (4, 1024)
    assert row["iteration_s"] == pytest.approx(0.6388)


@pytest.mark.parametrize(
    ("text", "batch", "network", "seconds", "memory_gib"),
    [
        (ZOO, None, "Mask R-50-FPN", 0.4536, 5.2),
        (ZOO_IN_HTML, 2, "Faster R-CNN R50-FPN", 0.21, 3.0),
    ],
)
def test_detectors_have_a_time_and_a_peak(
    text: str, batch: int | None, network: str, seconds: float, memory_gib: float
) -> None:
    about = {"gpu_type": "Tesla V100", "framework": "pytorch", "batch_size": batch}
    (row,) = read("detectors", {"MODEL_ZOO.md": text}, **about)
    assert (row["network"], row["iteration_s"], row["batch_size"]) == (network, seconds, 2)
    assert row["gpu_peak_bytes"] == int(memory_gib * GIB)


@pytest.mark.parametrize(
    ("status", "networks", "count"),
    [("success", RESNET, 1), ("aborted", RESNET, 0), ("success", SSD, 0)],
)
def test_a_run_of_mlperf_counts_where_it_reached_its_goal(
    status: str, networks: dict[str, list[object]], count: int
) -> None:
    files = {
        "Dell/results/8xA30/resnet/result_0.txt": LOG.replace("STATUS", status),
        "Dell/systems/8xA30.json": json.dumps(SYSTEM),
    }
    rows = read("mlperf_results", files, networks=networks)
    assert len(rows) == count
    for row in rows:
        assert (row["gpu_type"], row["gpus"], row["batch_size"]) == ("NVIDIA A30", 8, 128)
        assert row["iterations"] == round(35 * 1281167 / 1024)
        assert row["runtime_s"] == pytest.approx(4493.628)


def test_rows_are_what_an_import_takes() -> None:
    rows = read("mpt_throughputs", {"README.md": MPT})
    out = io.StringIO()
    writer = csv.DictWriter(out, rows[0])
    writer.writeheader()
    writer.writerows(rows)
    got = parse(out.getvalue().encode(), "mpt.csv", "llm-foundry")
    assert (len(got.traces), got.problems, got.dropped) == (1, (), ())


def test_each_source_has_a_reader_a_commit_and_a_licence() -> None:
    for told in YAML(typ="safe", pure=True).load(TABLE)["sources"].values():
        assert told["reader"] in READERS
        assert len(told["commit"]) == 40
        assert told["licence"]


def test_files_come_of_a_mirror_by_their_pattern(tmp_path: Path) -> None:
    work = tmp_path / "work"
    git = ("git", "-C", str(work), "-c", "user.name=a", "-c", "user.email=a@example.org")
    for name in ("results/a.csv", "results/b.txt"):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text(name)
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "both"]):
        subprocess.run([*git, *words], check=True)
    commit = subprocess.check_output([*git, "rev-parse", "HEAD"], text=True).strip()
    mirror = tmp_path / "mirrors" / "owner" / "name.git"
    subprocess.run(["git", "clone", "-q", "--bare", work, mirror], check=True)
    told = {"address": "https://git.invalid/owner/name", "commit": commit, "files": ["*.csv"]}
    assert list(files_of(told, tmp_path, tmp_path / "mirrors")) == [("results/a.csv",) * 2]
