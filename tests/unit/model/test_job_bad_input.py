"""Every kind of bad input ends in one line: file and line, field, value, what is allowed."""

import pytest

from headway.errors import InvalidInput
from headway.model.job import Dataset, Resources, TrainingJob
from headway.model.job_text import job_from_document, read_job

SIZE = "give a size with its unit between 6.0 MiB and 64.0 TiB"
LIFE = "give a duration with its unit between 1.0 s and 365 d, such as 4h"
GPUS = "give a whole number between 0 and 1024"
CPUS = "give a number between 0.01 and 4096"
COUNT = "give a whole number between 1 and 1,000,000,000,000"
NAME = "give 1 to 63 letters, digits, dots, dashes or underscores"
LABEL = "give at most 64 letters, digits, spaces"
IMAGE = "give an image such as python:3.11-slim"
PROGRAM = "give the program alone as the first item"
LIST = 'such as ["python", "train.py"]'
TEXT = "give text; put it in quotes"
INVISIBLE = "give text without control or invisible characters; it has U+"
SECRET = "it looks like a secret; name a Prefect Secret block in secrets"
OURS = "this variable is headway's to set; leave it out"
KEY = "give a name of ASCII letters, digits and underscores"
BLOCK = "give the name of a Prefect Secret block"
PORT = "give a whole number between 1024 and 65535"
ADDRESS = "give an absolute path, such as /data/flights.csv, or an address"
SYSTEM = "give a directory or file with data; this belongs to the system"
OUTPUT = "give a pattern below the outputs directory"
HIDDEN = "a hidden value"

GOOD = {"name": "t", "image": "python:3.11", "command": ["python", "train.py"]}


def text(*lines: str, without: str = "") -> str:
    """A job of three good lines, without one of them, and *lines* after that."""
    good = ("name: t", "image: python:3.11", "command: [python, train.py]")
    kept = [line if not without or not line.startswith(without) else "#" for line in good]
    return "\n".join([*kept, *lines, ""])


def refused(document: str | bytes, **more: object) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        read_job(document, **more)  # type: ignore[arg-type]
    line = str(caught.value)
    assert line.isprintable(), "a message is one line without control or reordering characters"
    assert len(line) < 400
    return caught.value


def says(error: InvalidInput, where: str, field: str, value: str, allowed: str) -> None:
    message = str(error)
    assert message.startswith(f"{where} {field}: got {value}; "), message
    assert allowed in message, message


HUGE = "1" + "0" * 30 + "GiB"
NUMBERS = [
    # group, key, what is written, what is shown, what is allowed
    ("resources", "host_memory", "-5g", '"-5g"', SIZE),
    ("resources", "host_memory", "0", "0", SIZE),
    ("resources", "host_memory", '""', '""', SIZE),
    ("resources", "host_memory", "", "nothing", SIZE),
    ("resources", "host_memory", ".nan", '".nan"', SIZE),
    ("resources", "host_memory", "inf", '"inf"', SIZE),
    ("resources", "host_memory", "1e400", '"1e400"', SIZE),
    ("resources", "host_memory", HUGE, f'"{HUGE}"', SIZE),
    ("resources", "host_memory", "9223372036854775808", "9223372036854775808", SIZE),
    ("resources", "host_memory", "true", "True", SIZE),
    ("resources", "host_memory", "no", '"no"', SIZE),
    ("resources", "host_memory", "٣GiB", '"٣GiB"', SIZE),
    ("resources", "host_memory", "5MiB", '"5MiB"', SIZE),
    ("resources", "host_memory", "8", "8", SIZE),
    ("resources", "host_memory", "8 gigs", '"8 gigs"', SIZE),
    ("resources", "host_memory", "[8GiB]", "['8GiB']", SIZE),
    ("resources", "gpu_memory", "-5g", '"-5g"', SIZE),
    ("resources", "gpu_memory", "65TiB", '"65TiB"', SIZE),
    ("resources", "shm", "true", "True", SIZE),
    ("resources", "disk", "-1GiB", '"-1GiB"', "between 0 B and 64.0 TiB"),
    ("resources", "gpus", "-1", "-1", GPUS),
    ("resources", "gpus", "1.5", "1.5", GPUS),
    ("resources", "gpus", "1.0", "1.0", GPUS),
    ("resources", "gpus", "true", "True", GPUS),
    ("resources", "gpus", '"1"', '"1"', GPUS),
    ("resources", "gpus", "", "nothing", GPUS),
    ("resources", "gpus", "٣", '"٣"', GPUS),
    ("resources", "gpus", "012", '"012"', GPUS),
    ("resources", "gpus", "9223372036854775808", "9223372036854775808", GPUS),
    ("resources", "cpus", "-1", "-1", CPUS),
    ("resources", "cpus", "0", "0", CPUS),
    ("resources", "cpus", ".nan", '".nan"', CPUS),
    ("resources", "cpus", ".inf", '".inf"', CPUS),
    ("resources", "cpus", "1e400", '"1e400"', CPUS),
    ("resources", "cpus", "true", "True", CPUS),
    ("resources", "cpus", "4097", "4097", CPUS),
    ("resources", "cpu_fallback", "1", "1", "give true or false"),
    ("resources", "cpu_fallback", "yes", '"yes"', "give true or false"),
    ("resources", "sharing", "hole", '"hole"', "did you mean whole?"),
    ("training", "epochs", "0", "0", COUNT),
    ("training", "epochs", "-3", "-3", COUNT),
    ("training", "epochs", "true", "True", COUNT),
    ("training", "epochs", "1e3", "1000.0", COUNT),
    ("training", "samples", "9223372036854775808", "9223372036854775808", COUNT),
    ("training", "batch_size", "0", "0", COUNT),
    ("training", "data_threads", "-1", "-1", "between 0 and 4096"),
    ("training", "precision", "fp8", '"fp8"', "give one of fp32, fp16, amp, bf16"),
    ("", "max_runtime", "0", "0", LIFE),
    ("", "max_runtime", "0s", '"0s"', LIFE),
    ("", "max_runtime", "-1h", '"-1h"', LIFE),
    ("", "max_runtime", "4", "4", LIFE),
    ("", "max_runtime", "true", "True", LIFE),
    ("", "max_runtime", ".inf", '".inf"', LIFE),
    ("", "max_runtime", "nan", '"nan"', LIFE),
    ("", "max_runtime", "٤h", '"٤h"', LIFE),
    ("", "max_runtime", "9999d", '"9999d"', LIFE),
    ("", "stop_grace", "1h", '"1h"', "between 1.0 s and 10 min, such as 30s"),
    ("", "retries", "-1", "-1", "give a whole number between 0 and 10"),
    ("", "retries", "true", "True", "give a whole number between 0 and 10"),
]


@pytest.mark.parametrize(("group", "key", "written", "shown", "allowed"), NUMBERS)
def test_numbers(group: str, key: str, written: str, shown: str, allowed: str) -> None:
    if group:
        lines, where, field = [f"{group}:", f"  {key}: {written}"], "job.yaml:5", f"{group}.{key}"
    else:
        lines, where, field = [f"{key}: {written}"], "job.yaml:4", key
    says(refused(text(*lines)), where, field, shown, allowed)


def test_a_batch_is_not_larger_than_its_data() -> None:
    error = refused(text("training:", "  samples: 10", "  batch_size: 11"))
    says(error, "job.yaml:6", "training.batch_size", "11", "give at most samples, which is 10")


@pytest.mark.parametrize("asked", ["gpu_memory: 2GiB", "gpu_type: V100"])
def test_gpu_memory_and_type_need_a_gpu(asked: str) -> None:
    error = refused(text("resources:", f"  {asked}", "  gpus: 0"))
    says(error, "job.yaml:6", "resources.gpus", "0", "give at least 1")


NAMES = [
    ('"a\\u202eb"', '"a\\u202eb"'),
    ('"a\\u200bb"', '"a\\u200bb"'),
    ('"a\\0b"', '"a\\x00b"'),
    ('"a\\ud800b"', '"a\\ud800b"'),
    ('"a\\nb"', '"a\\nb"'),
    ("x'; DROP TABLE runs;--", '"x\'; DROP TABLE runs;--"'),
    ('"<img src=x onerror=alert(1)>"', '"<img src=x onerror=alert(1)>"'),
    ("javascript:alert(1)", '"javascript:alert(1)"'),
    ("-rf", '"-rf"'),
    ("../up", '"../up"'),
    ("''", '""'),
    ("", "nothing"),
    ("true", "True"),
    ("12", "12"),
    ("1.5", "1.5"),
    ("ünïcode", '"ünïcode"'),
    ("x" * 64, f'"{"x" * 64}"'),
]


@pytest.mark.parametrize(("written", "shown"), NAMES)
@pytest.mark.parametrize("key", ["name", "team"])
def test_names(key: str, written: str, shown: str) -> None:
    says(refused(text(f"{key}: {written}", without=key)), "job.yaml:4", key, shown, NAME)


@pytest.mark.parametrize(("written", "shown"), [each for each in NAMES if each[1] != '""'])
def test_owners(written: str, shown: str) -> None:
    """It may be left out, or be empty: nobody has said whose the job is."""
    says(refused(text(f"owner: {written}")), "job.yaml:4", "owner", shown, "or leave it out")


@pytest.mark.parametrize("written", ['"a\\u202eb"', '"a\\nb"', "<b>", "12", "'x\\y'"])
@pytest.mark.parametrize("field", ["training.network", "training.framework", "resources.gpu_type"])
def test_labels(field: str, written: str) -> None:
    group, key = field.split(".")
    error = refused(text(f"{group}:", f"  {key}: {written}"))
    assert (error.field, error.where) == (field, "job.yaml:5")
    assert error.allowed.startswith(LABEL)


UNKNOWN = [
    (["nmae: x"], 4, "nmae", '"x"', "did you mean name?"),
    (["gpus: 1"], 4, "gpus", "1", "no such key here; did you mean resources.gpus?"),
    (["resources:", "  gpu_mem: 1GiB"], 5, "resources.gpu_mem", '"1GiB"', "resources.gpu_memory?"),
    (["dataset:", "  uri: /d", "  sha: x"], 6, "dataset.sha", '"x"', "did you mean dataset.sha256"),
    (["zzz: 1"], 4, "zzz", "1", "no such key; keys here are name, owner, team"),
    (["<<: {a: 1}"], 4, '"<<"', "{'a': 1}", "no such key"),
    (["api_token: hunter2"], 4, "api_token", HIDDEN, "no such key"),
    (["resources: 5"], 4, "resources", "5", "give a group of keys: gpus, nodes"),
    (["dataset: /data"], 4, "dataset", '"/data"', "give a group of keys: uri, sha256, size"),
]


@pytest.mark.parametrize(("lines", "number", "field", "shown", "allowed"), UNKNOWN)
def test_unknown_keys(lines: list[str], number: int, field: str, shown: str, allowed: str) -> None:
    says(refused(text(*lines)), f"job.yaml:{number}", field, shown, allowed)


def test_a_misspelt_key_is_told_before_the_one_that_is_missing() -> None:
    error = refused(text("imgae: python:3.11", without="image"))
    says(error, "job.yaml:4", "imgae", '"python:3.11"', "did you mean image?")


@pytest.mark.parametrize("key", ["name", "image", "command"])
def test_what_is_missing_is_named(key: str) -> None:
    error = refused(text(without=key))
    assert (error.field, repr(error.value)) == (key, "nothing")


IMAGES = [
    ("", "nothing", IMAGE),
    ("''", '""', IMAGE),
    ("';rm -rf /'", '";rm -rf /"', IMAGE),
    ("-v", '"-v"', IMAGE),
    ("Python:3.11", '"Python:3.11"', "in lower case, such as python:3.11"),
    ("a b", '"a b"', IMAGE),
    ("../x", '"../x"', IMAGE),
    ("http://x/y", '"http://x/y"', IMAGE),
    ('"python\\n"', '"python\\n"', IMAGE),
    ('"pyt\\u200bhon"', '"pyt\\u200bhon"', IMAGE),
    ("8", "8", IMAGE),
    ("python@sha256:12", '"python@sha256:12"', IMAGE),
]


@pytest.mark.parametrize(("written", "shown", "allowed"), IMAGES)
def test_images(written: str, shown: str, allowed: str) -> None:
    error = refused(text(f"image: {written}", without="image"))
    says(error, "job.yaml:4", "image", shown, allowed)


COMMANDS = [
    ("python train.py", "command", '"python train.py"', 'such as ["python", "train.py"]'),
    ("", "command", "nothing", LIST),
    ("[]", "command", "[]", LIST),
    ("{a: b}", "command", "{'a': 'b'}", LIST),
    ("['']", "command[0]", '""', PROGRAM),
    ("['-c']", "command[0]", '"-c"', PROGRAM),
    ("[';rm']", "command[0]", '";rm"', PROGRAM),
    ("['python train.py']", "command[0]", '"python train.py"', PROGRAM),
    ("[python, 1]", "command[1]", "1", TEXT),
    ("[python, null]", "command[1]", "nothing", TEXT),
    ("[python, yes, true]", "command[2]", "True", TEXT),
    ('[python, "\\0"]', "command[1]", '"\\x00"', INVISIBLE),
    ('[python, "\\ud800"]', "command[1]", '"\\ud800"', INVISIBLE),
    ('["pyt\\u202ehon"]', "command[0]", '"pyt\\u202ehon"', INVISIBLE),
    (f"[python, --key=hf_{'a' * 30}]", "command[1]", HIDDEN, SECRET),
]


@pytest.mark.parametrize(("written", "field", "shown", "allowed"), COMMANDS)
def test_commands(written: str, field: str, shown: str, allowed: str) -> None:
    error = refused(text(f"command: {written}", without="command"))
    says(error, "job.yaml:4", field, shown, allowed)


ENVIRONMENT = [
    ("NVIDIA_VISIBLE_DEVICES: all", "env.NVIDIA_VISIBLE_DEVICES", '"all"', OURS),
    ("CUDA_VISIBLE_DEVICES: '0'", "env.CUDA_VISIBLE_DEVICES", '"0"', OURS),
    ("LD_PRELOAD: /x.so", "env.LD_PRELOAD", '"/x.so"', OURS),
    ("DOCKER_HOST: tcp://x", "env.DOCKER_HOST", '"tcp://x"', OURS),
    ("'A=B': x", 'env."A=B"', '"x"', KEY),
    ("1A: x", "env.1A", '"x"', KEY),
    ("'': x", 'env.""', '"x"', KEY),
    ("'Ä': x", 'env."Ä"', '"x"', KEY),
    ('A: "x\\ny"', "env.A", HIDDEN, "give one line"),
    ('A: "x\\0y"', "env.A", '"x\\x00y"', INVISIBLE),
    ("A: true", "env.A", "True", 'give text in quotes: "true"'),
    ("A: [1]", "env.A", "[1]", TEXT),
    ("A:", "env.A", "nothing", TEXT),
    ("AWS_SECRET_ACCESS_KEY: abc", "env.AWS_SECRET_ACCESS_KEY", HIDDEN, SECRET),
    ("HF_TOKEN: abc", "env.HF_TOKEN", HIDDEN, SECRET),
    ("DB_PASSWORD: abc", "env.DB_PASSWORD", HIDDEN, SECRET),
    (f"A: ghp_{'a' * 36}", "env.A", HIDDEN, SECRET),
    (f"A: hf_{'a' * 30}", "env.A", HIDDEN, SECRET),
    (f"A: AKIA{'B' * 16}", "env.A", HIDDEN, SECRET),
    ("A: postgres://u:pw@host/db", "env.A", HIDDEN, SECRET),
]


@pytest.mark.parametrize(("written", "field", "shown", "allowed"), ENVIRONMENT)
def test_environment(written: str, field: str, shown: str, allowed: str) -> None:
    says(refused(text("env:", f"  {written}")), "job.yaml:5", field, shown, allowed)


SECRETS = [
    ("A: ghp_abc def", "secrets.A", BLOCK),
    ("A: Upper", "secrets.A", BLOCK),
    ("LD_PRELOAD: x", "secrets.LD_PRELOAD", OURS),
    ("'A=B': x", 'secrets."A=B"', KEY),
]


@pytest.mark.parametrize(("written", "field", "allowed"), SECRETS)
def test_secrets_are_names_and_never_shown(written: str, field: str, allowed: str) -> None:
    says(refused(text("secrets:", f"  {written}")), "job.yaml:5", field, HIDDEN, allowed)


def test_a_variable_comes_from_one_place() -> None:
    error = refused(text("env: {A: x}", "secrets: {A: block}"))
    says(error, "job.yaml:5", "secrets.A", '"block"', "it is in env too; give it once")


PORTS = [
    ("[80]", "ports[0]", "80", PORT),
    ("[65536]", "ports[0]", "65536", PORT),
    ("[6006, -1]", "ports[1]", "-1", PORT),
    ("[true]", "ports[0]", "True", PORT),
    ("['6006']", "ports[0]", '"6006"', PORT),
    ("[6006, 8080, 6006]", "ports[2]", "6006", "give each port once"),
    ("6006", "ports", "6006", "give a list of at most 16 items, such as [6006]"),
    ("6006:80", "ports", '"6006:80"', "give a list of at most 16 items, such as [6006]"),
]


@pytest.mark.parametrize(("written", "field", "shown", "allowed"), PORTS)
def test_ports(written: str, field: str, shown: str, allowed: str) -> None:
    says(refused(text(f"ports: {written}")), "job.yaml:4", field, shown, allowed)


PATHS = [
    ("../x", '"../x"', 'give the address without ".."'),
    ("/data/../etc", '"/data/../etc"', 'give the address without ".."'),
    ("s3://a/%2e%2e/b", '"s3://a/%2e%2e/b"', 'give the address without ".."'),
    ("/etc:/host", '"/etc:/host"', "give a path without colons"),
    ("/var/run/docker.sock", '"/var/run/docker.sock"', SYSTEM),
    ("/proc/self/environ", '"/proc/self/environ"', SYSTEM),
    ("//proc/1", '"//proc/1"', SYSTEM),
    ("/dev/zero", '"/dev/zero"', SYSTEM),
    ("file:///sys/x", '"file:///sys/x"', SYSTEM),
    ("/", '"/"', SYSTEM),
    ("data/set", '"data/set"', ADDRESS),
    ("./set", '"./set"', ADDRESS),
    ("~/set", '"~/set"', ADDRESS),
    ("file://set", '"file://set"', ADDRESS),
    ("zip://a::/b.zip", '"zip://a::/b.zip"', ADDRESS),
    ("javascript:alert(1)", '"javascript:alert(1)"', ADDRESS),
    ("", "nothing", ADDRESS),
    ("''", '""', ADDRESS),
    ("8", "8", ADDRESS),
    ('"/a\\nb"', '"/a\\nb"', INVISIBLE),
    ('"/a\\u202eb"', '"/a\\u202eb"', INVISIBLE),
    ('"/a\\0b"', '"/a\\x00b"', INVISIBLE),
    ("https://me:pw@host/x", HIDDEN, "without a password or key"),
]


@pytest.mark.parametrize(("written", "shown", "allowed"), PATHS)
def test_addresses(written: str, shown: str, allowed: str) -> None:
    error = refused(text("dataset:", f"  uri: {written}"))
    says(error, "job.yaml:5", "dataset.uri", shown, allowed)


@pytest.mark.parametrize("pattern", ["../x", "a/../../x", "/etc/*", "~/x", "", "a\\\\b"])
def test_outputs_stay_below_their_directory(pattern: str) -> None:
    error = refused(text(f'outputs: ["{pattern}"]'))
    assert error.field == "outputs[0]"
    assert error.allowed.startswith(OUTPUT)


def test_a_flow_gets_the_same_line_without_a_file() -> None:
    with pytest.raises(InvalidInput) as caught:
        job_from_document({**GOOD, "resources": {"gpu_memory": "-5g", "gpus": 1}})
    assert str(caught.value).startswith(f'resources.gpu_memory: got "-5g"; {SIZE}')


@pytest.mark.parametrize(
    ("resources", "field"),
    [
        ({"cpus": float("nan")}, "resources.cpus"),
        ({"cpus": float("inf")}, "resources.cpus"),
        ({"cpus": 10**400}, "resources.cpus"),
        ({"gpus": 10**5000}, "resources.gpus"),
        ({"gpus": True}, "resources.gpus"),
        ({"host_memory": -1}, "resources.host_memory"),
        ({1: 2}, "resources"),
    ],
)
def test_plain_data_may_hold_what_no_text_can(resources: object, field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        job_from_document({**GOOD, "resources": resources})
    assert caught.value.field == field
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("document", [None, [], "x", 5, {"x": {}}])
def test_what_is_no_job_at_all(document: object) -> None:
    with pytest.raises(InvalidInput):
        job_from_document(document)


def test_plain_data_that_never_ends_is_refused() -> None:
    endless: dict[str, object] = {}
    endless["x"] = endless
    with pytest.raises(InvalidInput, match="nest at most 20"):
        job_from_document(endless)
    with pytest.raises(InvalidInput, match="give fewer"):
        job_from_document({**GOOD, "ports": list(range(30_000))})


def test_python_gets_an_error_with_field_and_value() -> None:
    with pytest.raises(InvalidInput) as caught:
        TrainingJob(**{**GOOD, "resources": {"gpus": -1}})  # type: ignore[arg-type]
    assert (caught.value.field, caught.value.value) == ("resources.gpus", -1)
    with pytest.raises(InvalidInput) as caught:
        Resources(cpus=-2)
    assert (caught.value.field, caught.value.value) == ("resources.cpus", -2)
    with pytest.raises(InvalidInput) as caught:
        Dataset(uri="~/x")
    assert (caught.value.field, caught.value.value) == ("dataset.uri", "~/x")
    with pytest.raises(InvalidInput) as caught:
        Resources(gpus=10**5000)
    assert "too many digits" in str(caught.value)
