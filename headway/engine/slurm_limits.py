"""What Slurm's reasons about limits mean, and how much of one is held. Pure functions of its words.

The limits are those of `scontrol show assoc_mgr`, as it writes them in 22.05: ``NAME=MOST(HELD)``,
N where there is none; of resources (TRES) one for each, ``cpu=2(1),mem=500(10)``, memory in MiB.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from headway.engine.port import Reason
from headway.units import MIB, format_size

LESS = "wait until one of your own jobs ends, ask for less, or ask the cluster's operators"
NEVER = "it will never start so: cancel it, and submit it with other values"
_LIMITED = re.compile(
    r"(?P<whose>QOS|Assoc)(?P<which>Grp|Max)(?P<what>[A-Za-z]*?)(?P<per>Per[A-Z][a-z]+)?"
    r"(?:RunMinutes|Minutes)?(?:Limit)?"
)
_THINGS: Mapping[str, tuple[str, str]] = {
    "GRES": ("GPUs", "TRES.gres/gpu"), "Cpu": ("CPUs", "TRES.cpu"), "CPU": ("CPUs", "TRES.cpu"),
    "Mem": ("memory", "TRES.mem"), "Memory": ("memory", "TRES.mem"),
    "Node": ("nodes", "TRES.node"), "Jobs": ("jobs", "Jobs"),
    "SubmitJobs": ("waiting and running jobs", "SubmitJobs"), "Wall": ("time", ""),
    "WallDuration": ("time", ""), "CPUMins": ("CPU minutes", ""),
    "Billing": ("billing units", "TRES.billing"),
}  # fmt: skip
"""For the thing in a reason, how it is called and the name of its limit."""
_PER = {"PerUser": "PU", "PerAccount": "PA", None: ""}
_VALUE = re.compile(r"(\d+)\((\d+)\)")


@dataclass(frozen=True, slots=True)
class Limit:
    """How much may be held at once, and is; memory in MiB."""

    most: int
    held: int


Limits = Mapping[tuple[str, str], Mapping[str, Limit]]
"""By ("QOS", its name) and ("Assoc", an account), then by name: GrpJobs, MaxTRESPU.gres/gpu."""
Whose = Mapping[str, str]
"""Of a job: "QOS" and "Assoc", each with the name."""
Ends = Mapping[tuple[str, str], datetime]
"""By the same as limits."""
NOBODYS: Whose = {"QOS": "", "Assoc": ""}


def is_limit(code: str) -> bool:
    """Whether that reason speaks of a limit of a QOS or an account."""
    return _LIMITED.fullmatch(code) is not None


def read_limits(text: str, user: str, uid: int) -> Limits:
    """The limits for *user*, by ``scontrol show assoc_mgr flags=qos,assoc --oneliner``."""
    found: dict[tuple[str, str], dict[str, Limit]] = {}
    for line in text.splitlines():
        outer, _, of_users = line.partition("User Limits=")
        outer = outer.partition("Account Limits=")[0]
        said = dict(word.partition("=")[::2] for word in outer.split())
        if name := said.get("QOS"):
            where = "QOS", name.partition("(")[0]
            own = re.search(rf"\b{uid}\)?={{([^}}]*)}}", of_users)
            words = [*outer.split(), *(own[1].split() if own else ())]
        elif said.get("UserName", user).partition("(")[0] in {"", user} and "Account" in said:
            where, words = ("Assoc", said["Account"]), outer.split()
        else:
            continue
        kept = found.setdefault(where, {})
        for each, limit in _limits(words):
            # An account's and one's own both hold: the narrower one is met first.
            if each not in kept or limit.most - limit.held < kept[each].most - kept[each].held:
                kept[each] = limit
    return found


def _limits(words: list[str]) -> Iterator[tuple[str, Limit]]:
    for word in words:
        name, _, value = word.partition("=")
        for part in value.split(","):
            thing, _, said = part.rpartition("=")
            if told := _VALUE.fullmatch(said):
                yield f"{name}.{thing}" if thing else name, Limit(int(told[1]), int(told[2]))


def limit_reason(code: str, job: Whose, known: Limits, ends: Ends) -> Reason | None:
    """What a reason means that speaks of a limit; None where it does not.

    Args:
        code: As Slurm writes it.
        job: The QOS and the account of the job.
        known: Limits, as far as Slurm tells them.
        ends: When the first of the user's own jobs ends at its time limit.
    """
    found = _LIMITED.fullmatch(code)
    if found is None:
        return None
    kind = found["whose"]
    where = kind, job[kind]
    whose = f"its QOS {job[kind]}".rstrip() if kind == "QOS" else "your account"
    thing, name = _THINGS.get(found["what"], (found["what"] or "resources", ""))
    for_whom = " for you" if found["per"] == "PerUser" else ""
    if found["which"] == "Max" and not for_whom and not found["what"].endswith("Jobs"):
        return Reason(code, f"it asks for more {thing} than {whose} lets one job have", NEVER)
    sentence = f"{whose} lets no more {thing} be held{for_whom} at once"
    scope, _, resource = name.partition(".")
    prefix = f"{found['which']}{scope}{_PER.get(found['per'], '')}" + (resource and f".{resource}")
    fitting = [
        limit
        for each, limit in known.get(where, {}).items()
        if name and each.partition(":")[0] == prefix
    ]
    facts: list[str] = []
    if fitting:
        met = min(fitting, key=lambda limit: limit.most - limit.held)
        unit = (lambda n: format_size(n * MIB)) if resource == "mem" else str
        facts.append(f"limit {unit(met.most)}, held {unit(met.held)}")
    if end := ends.get(where):
        facts.append(f"the first of yours ends by {end:%d %b %H:%M} UTC")
    sentence += f" ({'; '.join(facts)})" if facts else ""
    return Reason(code, sentence, LESS)
