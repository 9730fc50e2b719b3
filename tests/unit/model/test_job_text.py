"""Good jobs: YAML, JSON, plain data and overrides mean the same; nothing is lost on the way."""

import json
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from headway.errors import InvalidInput
from headway.model.job import TrainingJob
from headway.model.job_text import job_from_document, job_text, read_job
from headway.model.lease import Sharing
from headway.units import GIB, MIB

FULL = """\
name: flights.v2_a-b
owner: ann
team: vision
image: registry.example.org:5000/ml/train:v1.2
command: ["python", "-c", "print(1)\\nprint(2)", "--x=a;b", "ünï"]
dataset:
  uri: s3://bucket/set
  sha256: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
  size: 1.5GiB
resources:
  gpus: 2
  gpu_memory: 12GiB
  gpu_type: Tesla V100-SXM2-16GB
  sharing: whole
  host_memory: 6291457B
  cpus: 2
  shm: 1g
  disk: 0
  cpu_fallback: true
training:
  framework: scikit-learn
  network: resnet-50
  batch_size: 10
  epochs: 3
  data_threads: 0
  samples: 10
  precision: bf16
max_runtime: 1h30m0.5s
stop_grace: 1500ms
retries: 0
ports: [6006, 8080]
env:
  LEARNING_RATE: "0.1"
  TOKENIZERS_PARALLELISM: "false"
  PASSWORD_FILE: /run/secrets/x
  EMPTY: ""
config:
  arch: {layers: 4, norm: null, pad_token: "[PAD]", widths: [64, [32, 16]]}
  trainer: {lr: 1.0e-5, amp: true}
secrets:
  HF_TOKEN: team-hf-token
outputs: ["*.pt", "plots/**"]
"""
SMALL = "name: t\nimage: python\ncommand: [python]\n"


@pytest.mark.parametrize("sample", ["flights", "digits"])
def test_the_samples_are_good_jobs(sample: str) -> None:
    path = Path(__file__).parents[3] / "samples" / sample / "job.yaml"
    assert read_job(path.read_bytes()).job.image.startswith("headway-samples")


def test_every_field_is_read() -> None:
    job = read_job(FULL).job
    resources = job.resources
    assert (resources.gpu_memory, resources.host_memory) == (12 * GIB, 6 * MIB + 1)
    assert (resources.sharing, resources.cpus, resources.shm) == (Sharing.WHOLE, 2.0, GIB)
    assert resources.cpu_fallback is True
    assert (job.max_runtime, job.stop_grace, job.retries) == (5400.5, 1.5, 0)
    assert job.dataset is not None
    assert job.dataset.size == 3 * GIB // 2
    assert (job.training.batch_size, job.training.samples) == (10, 10)
    assert (job.ports, job.env["EMPTY"]) == ([6006, 8080], "")
    assert job.secrets == {"HF_TOKEN": "team-hf-token"}
    assert job.config["arch"]["widths"] == [64, [32, 16]]
    assert job.config["trainer"] == {"lr": 1e-5, "amp": True}


def test_defaults() -> None:
    job = read_job(SMALL).job
    assert (job.owner, job.team, job.retries, job.outputs) == ("", "default", 2, ["**"])
    assert (job.resources.gpus, job.resources.host_memory, job.resources.shm) == (
        0,
        "auto",
        64 * MIB,
    )
    assert job.dataset is None
    assert job.max_runtime is None


@pytest.mark.parametrize("text", [FULL, SMALL])
def test_a_document_is_read_again_as_the_same_job(text: str) -> None:
    job = read_job(text).job
    assert job_from_document(job.document()) == job
    assert read_job(json.dumps(job.document())).job == job
    assert TrainingJob.model_validate_json(job.model_dump_json()) == job
    assert job_from_document(job) is job


@pytest.mark.parametrize(
    "array",
    [
        "",
        "array: {parameters: {lr: [0.1, 1e-5], n: 1..3}, at_most: 2}",
        "array: {parameters: {seed: 1..10000}}",
        "array: {members: [{a: x}]}",
    ],
)
def test_a_job_file_that_is_written_anew_says_the_same(array: str) -> None:
    read = read_job(f"{FULL}\n{array}\n")
    text = job_text(read.job, read.array)
    assert len(text) < 32_000
    again = read_job(text)
    nobodys = {"owner": "", "team": "default"}  # the token says whose it is
    assert again.job == read.job.model_copy(update=nobodys)
    assert again.array == read.array


@pytest.mark.parametrize("group", ["resources", "training", "dataset", "env", "ports", "outputs"])
def test_a_group_with_nothing_in_it_means_its_default(group: str) -> None:
    assert read_job(f"{SMALL}{group}:\n  # nothing\n").job == read_job(SMALL).job


@pytest.mark.parametrize(
    "field", ["resources: {gpu_memory: }", "training: {epochs: }", "max_runtime:"]
)
def test_what_may_be_left_out_may_be_empty(field: str) -> None:
    assert read_job(SMALL + field).job == read_job(SMALL).job


def test_words_that_older_yaml_takes_for_booleans_are_words() -> None:
    job = read_job("name: no\nowner: on\nimage: yes\ncommand: [yes, no]\nenv: {A: off}\n").job
    assert (job.name, job.owner, job.image, job.command) == ("no", "on", "yes", ["yes", "no"])
    assert job.env == {"A": "off"}


def test_numbers_in_env_are_what_was_written() -> None:
    """They had to be put in quotes; as numbers, 3.10 and 1e-3 would become something else."""
    job = read_job(
        "name: n\nimage: i\ncommand: [c]\nenv: {A: 7, B: 3.10, C: 1e-3, D: -0.0, E: 010}\n"
    ).job
    assert job.env == {"A": "7", "B": "3.10", "C": "1e-3", "D": "-0.0", "E": "010"}


def test_overrides_win_and_are_read_as_yaml_but_text_below_env() -> None:
    job = read_job(
        SMALL,
        overrides=["resources.cpus=2", "command=[sh, -c, x]", "env.N=1", "dataset.uri=/data"],
    ).job
    assert (job.resources.cpus, job.command, job.env) == (2.0, ["sh", "-c", "x"], {"N": "1"})
    assert job.dataset is not None
    assert job.dataset.uri == "/data"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("resources.gpus=-1", "--set resources.gpus: got -1; give a whole number"),
        ("resources.gps=1", "--set resources.gps: got 1; no such key; did you mean"),
        ("gpus.count=1", "--set gpus: got {'count': 1}; no such key"),
        ("name.x=1", '--set name.x: got "1"; name has no keys below it'),
        ("name", '--set: got "name"; give key=value'),
        ("=1", '--set: got "=1"; give key=value'),
        ("env.\udcff=1", '--set: got "env.\\udcff=1"; give key=value'),
        ("a..b=1", '--set: got "a..b=1"; give key=value'),
        ("command=[", '--set:1 job: got "["; give valid YAML'),
        ("env.HF_TOKEN=abc", "--set env.HF_TOKEN: got a hidden value; it looks like a secret"),
    ],
)
def test_bad_overrides(override: str, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_job(SMALL + "resources:\n  gpus: 1\n", overrides=[override])
    assert str(caught.value).startswith(message)


def test_a_hostile_file_name_stays_on_its_line() -> None:
    with pytest.raises(InvalidInput) as caught:
        read_job("name: 1", filename="a\nb\u202e.yaml")
    assert caught.value.where == "a\\nb\\u202e.yaml:1"
    with pytest.raises(InvalidInput) as caught:
        read_job("name: 1", filename=f"{'long/' * 100}job.yaml")
    assert len(caught.value.where) == 202
    assert caught.value.where.endswith("long/job.yaml:1")


def test_places_are_known_for_what_is_found_out_later() -> None:
    read = read_job(SMALL + "resources:\n  cpus: 2\n", filename="j")
    assert read.place("resources.cpus") == "j:5"
    assert read.place("resources.host_memory") == "j:4"
    assert read.place("image") == "j:2"


def test_data_sets_have_names_of_their_own() -> None:
    written = "dataset: {uri: /data/all}\ndatasets:\n  a-1: {uri: /data/x, size: 2MiB}\n"
    job = read_job(SMALL + written).job
    assert {name: each.uri for name, each in job.data.items()} == {
        "": "/data/all",
        "a-1": "/data/x",
    }
    assert job.declared_data_bytes is None  # one does not say it
    assert read_job(
        SMALL + written.replace("all}", "all, size: 1MiB}")
    ).job.declared_data_bytes == (3 * 2**20)
    for name, said in [
        ("all", "dataset is called so"),
        ("A", "lower-case"),
        ("../x", "lower-case"),
    ]:
        with pytest.raises(InvalidInput, match=rf"j:6 datasets.*{name}.*: got .*{said}"):
            read_job(SMALL + written.replace("a-1", name), filename="j")
    with pytest.raises(InvalidInput, match=r"j:6 datasets.a-1.uri: got"):
        read_job(SMALL + written.replace("/data/x", "x"), filename="j")


def test_the_run_form_knows_every_field() -> None:
    schema = TypeAdapter(TrainingJob).json_schema()
    parts = [schema, *schema["$defs"].values()]
    fields = {name: field for part in parts for name, field in part["properties"].items()}
    assert all({"title", "$ref"} & field.keys() for field in fields.values())
    assert schema["required"] == ["name", "command"]
    assert fields["command"] == {
        "title": "Command",
        "description": fields["command"]["description"],
        "type": "array",
        "items": {"type": "string"},
        "minItems": 1,
        "position": 3,
    }
    assert fields["shm"]["default"] == "64MiB"
    assert fields["stop_grace"]["default"] == "10s"
    assert fields["sharing"]["enum"] == ["shared", "whole"]
    assert fields["ports"]["items"] == {"type": "integer", "minimum": 1024, "maximum": 65535}
    written = TypeAdapter(TrainingJob).json_schema(mode="serialization")
    assert set(written["properties"]) == set(schema["properties"])


def test_what_the_form_offers_as_default_is_read() -> None:
    schema = TypeAdapter(TrainingJob).json_schema()
    offered = {
        name: field["default"] for name, field in schema["properties"].items() if "default" in field
    }
    small = {"name": "t", "image": "python", "command": ["python"]}
    assert job_from_document({**offered, **small}) == read_job(SMALL).job


def test_the_form_shows_the_fields_as_they_are_declared() -> None:
    """Whatever order a database gives the keys of the schema back in."""
    schema = TypeAdapter(TrainingJob).json_schema()
    for part in (schema, *schema["$defs"].values()):
        fields = part.get("properties", {}).values()
        assert [field["position"] for field in fields] == list(range(len(fields)))
    assert schema["properties"]["name"]["position"] == 0
