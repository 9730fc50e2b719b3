"""`judge`: now or later, and why; `possible`: never, and what would do."""

import math
from dataclasses import replace

import pytest

from headway.errors import InvalidInput
from headway.model.lease import ANY_PORT, Admit, Demand, Refuse, Resource, Sharing, Wait
from headway.model.node import Capacity, Gpu, Node, NodePorts, NodeState, PortUse, Reserve
from headway.policy.admission import judge, over_quota, possible, shut_out, too_many_waiting
from headway.policy.fit import Headroom
from headway.policy.room import Need, Occupant, Room
from headway.policy.settings import Share, TeamSettings
from headway.units import GIB

H200, V100 = "NVIDIA H200", "Tesla V100-SXM2-16GB"


def gpu(
    index: int,
    free_gib: float,
    *,
    name: str = H200,
    idle: bool = False,
    busy: float = 0.0,
    whole: bool = False,
) -> Room:
    somebody = Occupant(math.inf, "r", 0.0, math.inf, Need(0, 0.0, whole))
    return Room(
        100 * GIB,
        1.0,
        round(free_gib * GIB),
        busy,
        occupants=[] if idle else [somebody],
        index=index,
        product=name,
        uuid=f"GPU-{index}",
    )


def headroom(*gpus: Room, memory_gib: int = 60, cpus: float = 8.0, **more) -> Headroom:
    return Headroom("n1", Room(60 * GIB, cpus, memory_gib * GIB), list(gpus), **more)


def demand(memory_gib: float = 1, *, gpu_gib: int = 0, **more) -> Demand:
    return Demand(round(memory_gib * GIB), gpu_memory_bytes=gpu_gib * GIB, **more)


def waits(asked: Demand, room: Headroom, resource: Resource, *words: str) -> None:
    answer = judge(asked, room)
    assert isinstance(answer, Wait)
    assert answer.resource is resource
    assert all(word in answer.reason for word in words), answer.reason


def chosen(asked: Demand, room: Headroom) -> list[int]:
    answer = judge(asked, room)
    assert isinstance(answer, Admit), answer
    return [int(grant.uuid[-1]) for grant in answer.gpus]


def test_exactly_what_is_left_fits_and_a_byte_more_waits():
    room = headroom(memory_gib=4, cpus=2.0)
    assert judge(Demand(4 * GIB, 2.0), room) == Admit("n1")
    waits(
        Demand(4 * GIB + 1),
        room,
        Resource.HOST_MEMORY,
        "host memory",
        "4.0 GiB is free for it, on n1",
    )
    waits(Demand(GIB, 2.5), room, Resource.CPUS, "needs 2.5 CPUs", "2 is free for it, on n1")


def test_a_node_that_outgrew_its_leases_is_shown_as_empty_not_negative():
    room = headroom(memory_gib=-2)
    waits(demand(1), room, Resource.HOST_MEMORY, "memory; nothing is free for it now, on n1")


def test_a_closed_node_waits_with_its_reason_first():
    room = headroom(memory_gib=0, closed="node n1 is draining (new driver)")
    waits(demand(), room, Resource.NODE, "draining (new driver)")


def test_a_port_that_a_run_has_is_waited_for():
    room = headroom()
    for port in (6006, 8080):
        room.port_room(port).enter(Occupant(math.inf, "r", 0.0, math.inf, Need(1, 0.0)))
    waits(demand(ports=(8080, 6006, 9000)), room, Resource.PORTS, "needs port 6006")
    assert judge(demand(ports=(9000,)), room) == Admit("n1")


def test_where_ports_are_published_any_number_of_runs_has_the_same_one():
    room = headroom(port_use=PortUse.PUBLISHED)
    room.ports[ANY_PORT] = Room(2, 0.0, 2, is_gpu=False)
    asked = demand(ports=(6006,))
    assert judge(asked, room) == Admit("n1")
    room.ports[ANY_PORT].enter(Occupant(math.inf, "r", 0.0, math.inf, Need(1, 0.0)))
    assert judge(asked, room) == Admit("n1")
    needs_two = demand(ports=(6006, ANY_PORT))
    waits(needs_two, room, Resource.PORTS, "needs 2 port(s); 1 of the 2 that n1 may give are free")


def test_a_service_in_containers_without_a_network_is_refused_before_it_waits():
    node = Node("n1", "p", Capacity(8, 64 * GIB), ports=NodePorts(PortUse.NONE))
    refused = possible(demand(ports=(6006,)), [node])
    assert isinstance(refused, Refuse)
    assert (refused.field, refused.value) == ("ports", [6006])
    assert "containers have no network there" in refused.allowed
    assert possible(demand(), [node]) is None
    assert possible(demand(ports=(6006,)), [node, node], count=2) is None  # its own network
    bound = replace(node, name="n2", ports=NodePorts())
    assert possible(demand(ports=(6006,)), [node, bound]) is None
    asked = demand(ports=(6006,))
    waits(asked, headroom(port_use=PortUse.NONE), Resource.NODE, "containers have no network")


def test_a_disk_without_room_is_waited_for():
    asked = demand(disk_bytes=10 * GIB)
    room = headroom(disk_bytes=4 * GIB)
    waits(asked, room, Resource.NODE, "10.0 GiB of disk", "4.0 GiB is free for it, on n1")
    assert isinstance(judge(asked, headroom(disk_bytes=10 * GIB)), Admit)
    assert isinstance(judge(asked, headroom()), Admit)  # where it was not read


def test_unread_gpus_stop_gpu_jobs_only():
    room = headroom(gpu_error="driver mismatch")
    waits(demand(gpus=1), room, Resource.GPUS, "cannot be read: driver mismatch")
    assert judge(demand(), room) == Admit("n1")


def test_the_tightest_gpu_is_taken_first():
    room = headroom(gpu(0, 80), gpu(1, 20), gpu(2, 40))
    assert chosen(demand(gpu_gib=10, gpus=1), room) == [1]
    assert chosen(demand(gpu_gib=30, gpus=1), room) == [2]
    assert chosen(demand(gpu_gib=10, gpus=2), room) == [1, 2]
    assert chosen(demand(gpu_gib=20, gpus=3), room) == [1, 2, 0]


def test_a_grant_promises_what_was_asked():
    answer = judge(demand(gpu_gib=10, gpus=1, gpu_utilisation_frac=0.4), headroom(gpu(0, 80)))
    assert isinstance(answer, Admit)
    (grant,) = answer.gpus
    assert (grant.memory_bytes, grant.utilisation_frac) == (10 * GIB, 0.4)
    assert grant.sharing is Sharing.SHARED


def test_gpu_memory_that_is_short_is_named_with_the_best_gpu():
    room = headroom(gpu(0, 5), gpu(1, 8))
    waits(
        demand(gpu_gib=10, gpus=1),
        room,
        Resource.GPU_MEMORY,
        "10.0 GiB on one GPU",
        "8.0 GiB is free for it, on n1/gpu1",
    )
    waits(demand(gpu_gib=10, gpus=2), room, Resource.GPU_MEMORY, "on each of 2 GPUs")


def test_too_few_gpus_with_room():
    room = headroom(gpu(0, 50), gpu(1, 5))
    waits(demand(gpu_gib=10, gpus=2), room, Resource.GPUS, "1 on n1 have it")


@pytest.mark.parametrize(
    ("busy", "asked", "limit", "fits"),
    [
        (0.0, 1.0, 1.0, True),
        (0.5, 0.5, 1.0, True),
        (0.5, 0.6, 1.0, False),
        (0.5, 0.6, 1.2, True),
        (0.0, 1.0, 0.5, True),  # an empty GPU takes anybody
    ],
)
def test_utilisations_add_up_to_the_limit(busy, asked, limit, fits):
    busy_gpu = replace(gpu(0, 50, busy=busy), load_limit=limit)
    room = headroom(busy_gpu, utilisation_limit=limit)
    wanted = demand(gpu_gib=1, gpus=1, gpu_utilisation_frac=asked)
    assert isinstance(judge(wanted, room), Admit) is fits


def test_a_gpu_without_a_byte_left_takes_nobody():
    assert isinstance(judge(demand(gpus=1), headroom(gpu(0, 0))), Wait)


def test_the_type_is_part_of_the_name_in_any_case():
    room = headroom(gpu(0, 50), gpu(1, 60, name=V100))
    assert chosen(demand(gpu_gib=1, gpus=1, gpu_type="v100"), room) == [1]
    assert isinstance(judge(demand(gpus=1, gpu_type="A100"), room), Wait)


def test_whole_takes_an_idle_gpu_and_all_its_memory():
    room = headroom(gpu(0, 90), gpu(1, 96, idle=True))
    answer = judge(demand(gpu_gib=10, gpus=1, sharing=Sharing.WHOLE), room)
    assert isinstance(answer, Admit)
    assert [(it.uuid, it.memory_bytes) for it in answer.gpus] == [("GPU-1", 100 * GIB)]
    waits(
        demand(gpus=2, sharing=Sharing.WHOLE),
        room,
        Resource.GPUS,
        "needs 2 whole GPU(s) on one node; at most 1 are free, on n1",
    )


def test_nobody_shares_a_gpu_that_is_taken_whole():
    assert isinstance(judge(demand(gpu_gib=1, gpus=1), headroom(gpu(0, 50, whole=True))), Wait)


# --- never ---


def node(
    name: str = "h1",
    memory_gib: int = 44,
    *,
    gpus: tuple[str, ...] = (),
    gpu_gib: int = 16,
    cpus: float = 8.0,
    state: NodeState = NodeState.READY,
) -> Node:
    found = tuple(Gpu(f"{name}-{i}", i, kind, gpu_gib * GIB, GIB) for i, kind in enumerate(gpus))
    return Node(name, "gpu", Capacity(cpus, memory_gib * GIB, found), Reserve(1.0, 4 * GIB), state)


def refusal(asked: Demand, *nodes: Node) -> Refuse:
    answer = possible(asked, nodes)
    assert isinstance(answer, Refuse)
    return answer


def test_what_some_empty_node_could_hold_is_possible():
    assert possible(demand(40), [node("h1", 8), node("h2")]) is None
    assert possible(demand(1, cpus=7.0), [node()]) is None
    two = node(gpus=(V100, V100))
    assert possible(demand(gpus=2, gpu_gib=15, gpu_type="V100"), [two]) is None


def test_a_drained_or_lost_node_counts_and_no_node_refuses_nothing():
    assert possible(demand(40), [node(state=NodeState.DRAINING)]) is None
    assert possible(demand(40), [node(state=NodeState.LOST)]) is None
    assert possible(demand(10_000), []) is None


def test_more_memory_than_any_node_has():
    answer = refusal(demand(96), node("h2"))
    assert (answer.field, answer.value) == ("resources.host_memory", "96.0 GiB")
    assert answer.allowed == "largest node h2 has 40.0 GiB; ask for at most that"


def test_the_largest_of_several_nodes_is_named():
    nodes = [node("h1", 8), node("h2"), node("h3", 12)]
    assert "largest node h2 has 40.0 GiB" in refusal(demand(96), *nodes).allowed
    nodes = [node("h1", cpus=4), node("h2", cpus=16), node("h3")]
    assert "largest node h2 has 15;" in refusal(demand(1, cpus=20), *nodes).allowed
    nodes = [node("h1", gpus=(V100,)), node("h2", gpus=(V100,), gpu_gib=80), node("h3")]
    asked = demand(1, gpus=1, gpu_gib=96)
    assert "the largest GPU of h2 (" in refusal(asked, *nodes).allowed
    nodes = [node("h1"), node("h2", gpus=(V100, V100)), node("h3", gpus=(V100,))]
    assert "largest node h2 has 2 that would do" in refusal(demand(1, gpus=3), *nodes).allowed


def test_a_type_is_looked_for_on_every_node():
    nodes = [node("h1"), node("h2", gpus=(V100,)), node("h3", gpus=(H200, H200))]
    answer = refusal(demand(1, gpus=1, gpu_type="V10O"), *nodes)
    assert answer.field == "resources.gpu_type"
    assert answer.allowed == f"did you mean V100? this site has {H200}, {V100}"


def test_a_fit_only_without_the_reserve_names_the_reserve():
    answer = refusal(demand(42), node("h2"))
    assert answer.allowed == (
        "largest node h2 has 40.0 GiB after its reserve of 4.0 GiB; ask for at most that"
    )
    answer = refusal(demand(1, gpus=1, gpu_gib=16), node(gpus=(V100,)))
    assert answer.field == "resources.gpu_memory"
    assert "has 15.0 GiB after its reserve of 1.0 GiB" in answer.allowed


def test_more_cpus_than_any_node_has():
    answer = refusal(demand(1, cpus=7.5), node("h2"))
    assert (answer.field, answer.value) == ("resources.cpus", 7.5)
    assert "largest node h2 has 7;" in answer.allowed


def test_more_gpus_than_any_node_has():
    answer = refusal(demand(1, gpus=3), node("h2", gpus=(V100, V100)))
    assert (answer.field, answer.value) == ("resources.gpus", 3)
    assert "largest node h2 has 2 that would do" in answer.allowed
    assert "no node has a GPU" in refusal(demand(1, gpus=1), node()).allowed


@pytest.mark.parametrize(
    ("asked", "hint"),
    [("V10O", "did you mean V100? "), ("H220", "did you mean H200? "), ("TPU", "")],
)
def test_an_unknown_gpu_type_suggests_the_nearest(asked, hint):
    answer = refusal(demand(1, gpus=1, gpu_type=asked), node(gpus=(V100, H200)))
    assert (answer.field, answer.value) == ("resources.gpu_type", asked)
    assert answer.allowed == f"{hint}this site has {H200}, {V100}"


def test_a_size_in_a_products_name_is_no_type():
    answer = refusal(demand(1, gpus=1, gpu_type="K80"), node(gpus=("NVIDIA A100-SXM4-80GB",)))
    assert answer.allowed == "this site has NVIDIA A100-SXM4-80GB"


def test_what_only_closed_nodes_could_hold_is_shut_out():
    big = replace(node("big"), state=NodeState.DRAINING, state_reason="new fan")
    small = replace(node("small"), capacity=Capacity(8.0, 16 * GIB))
    nodes = [big, small]
    answer = shut_out(demand(20), 1, "", nodes)
    assert answer == Wait(Resource.NODE, "node big is draining (new fan)")
    assert shut_out(demand(1), 1, "", nodes) is None
    assert shut_out(demand(1), 2, "", nodes) == answer
    assert shut_out(demand(1), 1, "big", nodes) == answer
    assert shut_out(demand(1), 1, "small", nodes) is None
    assert shut_out(demand(500), 1, "", nodes) is None


@pytest.mark.parametrize(
    ("limits", "field", "said"),
    [
        ({"max_running": 0}, "team", "its quota is 0"),
        ({"max_gpus": 0}, "resources.gpus", "team red may hold 0 at once"),
        ({"max_gpus": 3}, "resources.gpus", "team red may hold 3 at once"),
        (
            {"max_host_memory_bytes": 7 * GIB},
            "resources.host_memory",
            "team red may hold 7.0 GiB at once",
        ),
    ],
)
def test_what_a_team_may_never_hold_is_refused(
    limits: dict[str, int], field: str, said: str
) -> None:
    refusal = over_quota(Demand(4 * GIB, gpus=2), "red", TeamSettings(**limits), count=2)
    assert refusal is not None
    assert refusal.field == field
    assert refusal.allowed.startswith(said)


@pytest.mark.parametrize("listed", ["ada", "*"])
def test_what_a_user_may_never_hold_is_refused(listed: str) -> None:
    def refused(**limits: int) -> Refuse | None:
        team = TeamSettings(max_gpus=8, users={listed: Share(**limits)})
        return over_quota(Demand(4 * GIB, gpus=2), "red", team, count=1, user="ada")

    assert refused(max_gpus=2) is None
    found = refused(max_gpus=0)
    assert found is not None
    assert (found.field, found.value) == ("resources.gpus", 2)
    assert found.allowed == "user ada may hold 0 at once; ask for at most that"
    nothing = refused(max_running=0)
    assert nothing is not None
    assert (nothing.field, nothing.value) == ("owner", "ada")


def test_what_a_team_may_hold_waits_for_it() -> None:
    limits = TeamSettings(max_gpus=4, max_host_memory_bytes=8 * GIB, max_running=1)
    assert over_quota(Demand(4 * GIB, gpus=2), "red", limits, count=2) is None
    assert over_quota(Demand(4 * GIB), "red", TeamSettings(max_gpus=0), count=1) is None


@pytest.mark.parametrize(
    ("limits", "name"),
    [
        ({"max_running": 0}, "max_running"),
        ({"max_gpus": -1}, "max_gpus"),
        ({"max_host_memory_bytes": 0}, "max_host_memory_bytes"),
    ],
)
def test_a_quota_under_which_nothing_could_start_is_not_set(
    limits: dict[str, int], name: str
) -> None:
    with pytest.raises(InvalidInput, match=f"teams.red.{name}: got .*could ever start"):
        TeamSettings(**limits).check_quotas("teams.red")
    TeamSettings(max_gpus=0, max_running=1).check_quotas("teams.red")
    with pytest.raises(InvalidInput, match=rf"teams\.red\.users\.ada\.{name}: got"):
        TeamSettings(users={"ada": Share(**limits)}).check_quotas("teams.red")


def test_only_so_many_of_a_user_and_of_a_team_wait() -> None:
    limits = TeamSettings(max_waiting=5, users={"ada": Share(max_waiting=3)})

    def refused(more: int, of_team: int, of_user: int, user: str = "ada") -> str:
        found = too_many_waiting(more, (of_team, of_user), "vision", limits, user=user)
        return "" if found is None else f"{found.field}: {found.allowed}"

    assert refused(1, 2, 2) == ""
    assert refused(2, 2, 2).startswith("owner: user ada may have 3 waiting")
    assert refused(1, 5, 0).startswith("team: team vision may have 5 waiting")
    assert refused(1, 4, 4, user="bob") == ""
    default = TeamSettings()
    assert too_many_waiting(10_000, (20_000, 0), "t", default, user="u") is None
    assert too_many_waiting(10_000, (20_001, 0), "t", default, user="u") is not None
    assert too_many_waiting(10_000, (1, 1), "t", default, user="u") is not None
