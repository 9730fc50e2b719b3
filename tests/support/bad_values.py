"""Bad values of a job, and what is said of each, for tests of the model and of the gateway."""

SIZE = "give a size with its unit between 6.0 MiB and 64.0 TiB"
LIFE = "give a duration with its unit between 1.0 s and 365 d, such as 4h"
NODES = "give a whole number between 1 and 64, or a range of them such as 2-8"
RANGES = ["8-2", "2-99999999", "2-", "2-4-8", "2–4", "٢-٤", "2..4", "2-4x", "2-4,8", "two-4"]
"""No ranges of GPUs or nodes."""
GPUS = "give a whole number between 0 and 1024, or a range of them such as 2-8"
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
OUTPUT = "give a pattern below the working directory"
HIDDEN = "a hidden value"

GOOD = {"name": "t", "image": "python:3.11", "command": ["python", "train.py"]}


def text(*lines: str, without: str = "") -> str:
    """A job of three good lines, without one of them, and *lines* after that."""
    good = ("name: t", "image: python:3.11", "command: [python, train.py]")
    kept = [line if not without or not line.startswith(without) else "#" for line in good]
    return "\n".join([*kept, *lines, ""])


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
    *(
        ("resources", field, written, f'"{written}"', allowed)
        for field, allowed in (("gpus", GPUS), ("nodes", NODES))
        for written in RANGES
    ),
    ("resources", "gpus", "0-4", '"0-4"', "let the range begin at 1 or more, such as 1-4"),
    ("resources", "nodes", "0-4", '"0-4"', NODES),
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

UNKNOWN = [
    (["nmae: x"], 4, "nmae", '"x"', "did you mean name?"),
    (["gpus: 1"], 4, "gpus", "1", "no such key here; did you mean resources.gpus?"),
    (["resources:", "  gpu_mem: 1GiB"], 5, "resources.gpu_mem", '"1GiB"', "resources.gpu_memory?"),
    (
        ["dataset:", "  uri: /d", "  sha_256: x"],
        6,
        "dataset.sha_256",
        '"x"',
        "did you mean dataset.sha256",
    ),
    (["zzz: 1"], 4, "zzz", "1", "no such key; keys here are name, image, python"),
    (["<<: {a: 1}"], 4, '"<<"', "{'a': 1}", "no such key"),
    (["api_token: hunter2"], 4, "api_token", HIDDEN, "no such key"),
    (["resources: 5"], 4, "resources", "5", "give a group of keys: gpus, nodes"),
    (["dataset: /data"], 4, "dataset", '"/data"', "give a group of keys: uri, sha256, size"),
]

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

ENVIRONMENT = [
    ("NVIDIA_VISIBLE_DEVICES: all", "env.NVIDIA_VISIBLE_DEVICES", '"all"', OURS),
    ("CUDA_VISIBLE_DEVICES: '0'", "env.CUDA_VISIBLE_DEVICES", '"0"', OURS),
    ("LD_PRELOAD: /x.so", "env.LD_PRELOAD", '"/x.so"', OURS),
    ("DOCKER_HOST: tcp://x", "env.DOCKER_HOST", '"tcp://x"', OURS),
    ("__prefect_variable: x", "env.__prefect_variable", '"x"', OURS),
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

DEEPER = "{a: " * 16 + "1" + "}" * 16
CONFIGS = [
    ("[1]", "config", "[1]", "give keys with values"),
    ("text", "config", '"text"', "give keys with values"),
    ("{a: {b: [{__prefect_kind: jinja}]}}", "config.a.b[0].__prefect_kind", '"jinja"', "another"),
    ("{a: {password: x}}", "config.a.password", HIDDEN, "name a Prefect Secret block"),
    ("{url: 'https://a:b@c'}", "config.url", HIDDEN, "name a Prefect Secret block"),
    ('{a: "x\\0y"}', "config.a", '"x\\x00y"', INVISIBLE),
    ('{"a\\n": 1}', 'config."a\\n"', "1", INVISIBLE),
    (f"{{a: {DEEPER}}}", f"config{'.a' * 16}", "{'a': 1}", "nest at most 16 levels deep"),
    (
        f"{{a: [{', '.join(['x' * 1000] * 70)}]}}",
        "config",
        f"{{'a': ['{'x' * 71}…",
        "give at most 64 KiB as JSON",
    ),
]

SECRETS = [
    ("A: ghp_abc def", "secrets.A", BLOCK),
    ("A: Upper", "secrets.A", BLOCK),
    ("LD_PRELOAD: x", "secrets.LD_PRELOAD", OURS),
    ("'A=B': x", 'secrets."A=B"', KEY),
]

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
OUTPUTS = ["../x", "a/../../x", "/etc/*", "~/x", "", "a\\\\b"]
LABELLED = ["training.network", "training.framework", "resources.gpu_type"]
LABELS = ['"a\\u202eb"', '"a\\nb"', "<b>", "12", "'x\\y'"]

BROKEN: list[str | bytes] = [
    "a: &a [x, x, x, x]\nb: &b [*a, *a, *a, *a]\nc: &c [*b, *b, *b, *b]\n",
    text("x: !!python/object:os.system {}"),
    "x: " + "[" * 50 + "]" * 50,
    "[" * 100_000,
    "{" * 100_000,
    "a: b: c",
    "a: 1\nb: [",
    "---\na: 1\n---\nb: 2",
    "a: 1\nb: \x00",
    b"a: 1\nb: \xff",
    b"\xff\xfea\x00",
    "x" * 10_000_000,
    "",
    "[]",
    "5",
    "just words",
]
"""Texts that are no job at all."""

DIGEST = "sha256:" + "0123456789abcdef" * 4
NO_IMAGES = [
    "", " ", "python ", " python", "python\n", "python:3\n", "py\u200bthon", "pуthon",
    "python:３", "PYTHON", "Reg.example.org/a", "python:", "python@", "python@sha256:12",
    f"python@{DIGEST.upper()}", f"python@{DIGEST}0", f"python@{DIGEST}@{DIGEST}",
    "python@md5:" + "0" * 32, "python::3", "a:b:c", "/python", "python/", "a//b", "../a",
    "a/../b", "-v", ".a/b", "a..b", "_a", "http://x/y", "reg:port/a", "reg:/a", "reg:999999/a",
    "a" * 64, "a" * 256, "python:" + "1" * 169, "*", "python:*", "re*.org/a", "a?b", "a b",
    "a\0b", "[::1]:5000/a", DIGEST,
]  # fmt: skip

PATTERNS = ["(", "loss", "(?P<iteration>", "(?P<epoch>a)(?=b)", r"(?P<epoch>a)\1", "5", "(?P<n>x)"]
"""No pattern of progress."""
OTHERS = [
    ("dataset: {uri: /d, sha256: abc}", "dataset.sha256"),
    (f"dataset: {{uri: /d, sha256: {'A' * 64}}}", "dataset.sha256"),
    ("dataset: {uri: /d, size: -1GiB}", "dataset.size"),
    ("dataset: {uri: /d, size: 5}", "dataset.size"),
    ("preemptible: 1", "preemptible"),
    ("preemptible: yes", "preemptible"),
    ("profile: 1", "profile"),
    ("user_folder: ../../etc", "user_folder"),
    ("volumes: models", "volumes"),
    ("volumes: [../models]", "volumes[0]"),
    ("volumes: [models, models]", "volumes[1]"),
    ("requirements: requirements.txt", "requirements"),
    ("workdir: .\nrequirements: ../requirements.txt", "requirements"),
    ("outputs: x", "outputs"),
    ("env: [A]", "env"),
    ("secrets: A", "secrets"),
    ("resources: {nodes: 0}", "resources.nodes"),
    ("resources: {nodes: 65}", "resources.nodes"),
    ("resources: {nodes: 1.0}", "resources.nodes"),
    ("stop_grace: 10", "stop_grace"),
]
"""Other values that are not allowed, and the fields that they are in."""
