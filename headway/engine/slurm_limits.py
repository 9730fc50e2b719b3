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
_USED_UP = "ask the cluster's operators for more, or wait until what was used counts no more"
NEVER = "it will never start so: cancel it, and submit it with other values"
_LIMITED = re.compile(
    r"(?P<whose>QOS|Assoc)(?P<which>Grp|Max)(?P<what>[A-Za-z]*?)(?P<minutes>(?:Run)?Minutes)?"
    r"(?P<per>Per[A-Z][a-z]+)?(?:Limit)?"
)
_THINGS: Mapping[str, tuple[str, str]] = {
    "GRES": ("GPUs", "TRES.gres/gpu"), "Cpu": ("CPUs", "TRES.cpu"), "CPU": ("CPUs", "TRES.cpu"),
    "Mem": ("memory", "TRES.mem"), "Memory": ("memory", "TRES.mem"),
    "Node": ("nodes", "TRES.node"), "Jobs": ("jobs", "Jobs"),
    "SubmitJobs": ("waiting and running jobs", "SubmitJobs"),
    "SubmitJob": ("waiting and running jobs", "SubmitJobs"), "Wall": ("time", ""),
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

    @property
    def left(self) -> int:
        """How much more may be held."""
        return self.most - self.held


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
    """The limits for *user*, by ``scontrol show assoc_mgr flags=qos,assoc --oneliner``.

    Of an account with those of the accounts above it, which hold too; those for one partition alone
    are left out.
    """
    found: dict[tuple[str, str], dict[str, Limit]] = {}
    parents: dict[str, str] = {}
    for line in text.splitlines():
        outer, _, of_users = line.partition("User Limits=")
        outer = outer.partition("Account Limits=")[0]
        said = dict(word.partition("=")[::2] for word in outer.split())
        if name := said.get("QOS"):
            where = "QOS", name.partition("(")[0]
            own = re.search(rf"\b{uid}\)?={{([^}}]*)}}", of_users)
            words = [*outer.split(), *(own[1].split() if own else ())]
        elif said.get("UserName", user).partition("(")[0] in {"", user} and "Account" in said:
            if said.get("Partition"):
                continue
            where, words = ("Assoc", said["Account"]), outer.split()
            if above := said.get("ParentAccount", "").partition("(")[0]:
                parents[said["Account"]] = above
        else:
            continue
        _narrow(found.setdefault(where, {}), dict(_limits(words)))
    own_limits = {where: dict(kept) for where, kept in found.items()}
    for account in parents:
        over, seen = parents.get(account), {account}
        while over is not None and over not in seen:
            seen.add(over)
            _narrow(found["Assoc", account], own_limits.get(("Assoc", over), {}))
            over = parents.get(over)
    return found


def _narrow(kept: dict[str, Limit], more: Mapping[str, Limit]) -> None:
    """Of limits that hold together the one with the least left is met first."""
    for name, limit in more.items():
        if name not in kept or limit.left < kept[name].left:
            kept[name] = limit


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
    kind, what, per = found["whose"], found["what"], found["per"]
    where = kind, job[kind]
    whose = "its QOS" if kind == "QOS" else "your account"
    thing, name = _THINGS.get(what, (what or "resources", ""))
    for_whom = " for you" if per == "PerUser" else ""
    if found["which"] == "Max" and not for_whom and not what.endswith(("Job", "Jobs")):
        minutes = " in its time" if found["minutes"] else ""
        asks = f"it asks for more {thing}{minutes} than {whose} lets one job have"
        return Reason(code, asks, NEVER)
    if found["minutes"] == "Minutes":
        return Reason(code, f"{whose} has used up its minutes of {thing}", _USED_UP)
    if found["minutes"]:
        return Reason(code, f"the minutes of {thing} that {whose} lets run at once are taken", LESS)
    scope, _, resource = name.partition(".")
    prefix = f"{found['which']}{scope}{_PER.get(per, '')}" + (resource and f".{resource}")
    fitting = [
        limit
        for each, limit in known.get(where, {}).items()
        if name and each.partition(":")[0] == prefix
    ]
    met = min(fitting, key=lambda limit: limit.left, default=None)
    facts: list[str] = []
    # One of which much is left is not what it waits for: a partition's QOS has limits, too.
    if met is not None and met.held >= (met.most if not resource else met.most / 2):
        whose = f"its QOS {job[kind]}" if kind == "QOS" else whose
        unit = (lambda n: format_size(n * MIB)) if resource == "mem" else str
        facts.append(f"limit {unit(met.most)}, held {unit(met.held)}")
        if end := ends.get(where):
            facts.append(f"the first of yours ends by {end:%d %b %Y %H:%M} UTC")
    sentence = f"{whose} lets no more {thing} be held{for_whom} at once"
    sentence += f" ({'; '.join(facts)})" if facts else ""
    return Reason(code, sentence, LESS)
