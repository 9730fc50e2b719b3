"""How the parts of a job over several nodes are told of each other."""

import enum
import json
import re
from collections.abc import Mapping, Sequence
from ipaddress import AddressValueError, IPv4Address, IPv4Network


class Launch(enum.StrEnum):
    """What a program goes by to find its peers."""

    TORCH = "torch"
    """PyTorch's variables, and those that `torchrun` takes its options from."""
    TENSORFLOW = "tensorflow"
    """TF_CONFIG, by which `MultiWorkerMirroredStrategy` finds all workers."""
    HOROVOD = "horovod"
    """`horovodrun` in rank 0's container starts the processes in all of them."""
    MPI = "mpi"
    """`mpirun` does so."""
    NONE = "none"
    """Its command alone, in which `filled` puts rank, number of parts and meeting place."""

    @property
    def gathers(self) -> bool:
        """Whether a part has to know where all others are before its program begins."""
        return self is Launch.TENSORFLOW or self.starts_others

    def processes(self, gpus: int) -> int:
        """How many a program has on a node where it has *gpus* GPUs: one for each, or one in all.

        As `torchrun`, `mpirun` and `horovodrun` start them; a program that wants another number
        says so to them.
        """
        return 1 if self in {Launch.TENSORFLOW, Launch.NONE} else max(gpus, 1)

    @property
    def starts_others(self) -> bool:
        """Whether the program of rank 0 starts those of all other parts."""
        return self in {Launch.HOROVOD, Launch.MPI}


def filled(command: Sequence[str], values: Mapping[str, object]) -> list[str]:
    """*command* with ``{rank}`` and so on filled in; other braces stay, since programs have them.

    Args:
        command: A program and its arguments.
        values: What stands for each name.
    """
    names = re.compile("|".join(rf"\{{{name}\}}" for name in values))
    return [names.sub(lambda found: str(values[found[0][1:-1]]), each) for each in command]


def joined(address: str, port: int | str) -> str:
    """``ADDRESS:PORT``, an IPv6 address in brackets."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def host_file(addresses: Sequence[str], slots: int) -> str:
    """All parts as `mpirun` and `horovodrun` read them, with so many processes on each."""
    return "".join(f"{address} slots={slots}\n" for address in addresses)


def open_mpi_network(addresses: Sequence[str]) -> dict[str, str]:
    """Variables by which the parts of an Open MPI program use the network of *addresses* alone.

    By itself it pairs networks of two nodes whose subnets are alike, and waits for ever where an
    address is the same on both, as that of Docker's bridge: who asks for the other finds itself.
    It is told the smallest network with all *addresses*: what rank 0 is told holds for all
    processes, and names of interfaces may differ from node to node.

    Args:
        addresses: Of all parts. Nothing is said of names, of IPv6 and of what has no bit in common.
    """
    try:
        found = [IPv4Address(each) for each in addresses]
    except AddressValueError:
        return {}
    network = IPv4Network(found[0])
    while not all(each in network for each in found):
        network = network.supernet()
    # What processes send, and Open MPI 4's and 5's own daemons.
    kinds = ("OMPI_MCA_btl_tcp", "OMPI_MCA_oob_tcp", "PRTE_MCA_prte")
    told = {f"{kind}_if_include": str(network) for kind in kinds}
    return told if network.prefixlen else {}


def tf_config(places: Sequence[str], rank: int) -> str:
    """The value of TF_CONFIG for the worker *rank* of those at *places*.

    See https://www.tensorflow.org/guide/distributed_training, "TF_CONFIG environment variable".
    """
    task = {"type": "worker", "index": rank}
    return json.dumps({"cluster": {"worker": list(places)}, "task": task})
