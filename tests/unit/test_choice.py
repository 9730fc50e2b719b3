from datetime import UTC, datetime

import pytest

from headway import choice
from headway.choice import Prefer
from headway.estimate.estimator import Estimators
from headway.model.job import TrainingJob
from headway.model.job_parts import Training
from headway.model.node import Capacity, Gpu, Node, NodeSpace, NodeState
from headway.model.run import Span
from headway.model.trace import Trace
from headway.units import GIB, HOUR_S


def node(name, gpu, gpus, price, memory=16 * GIB, **changes):
    cards = tuple(Gpu(f"GPU-{name}-{i}", i, gpu, memory) for i in range(gpus))
    return Node(name, "gpu", Capacity(32, 256 * GIB, cards), gpu_price_per_hour=price, **changes)


SITE = [
    node("slow", "Tesla K80", 2, 0.5),
    node("fast", "NVIDIA V100", 4, 4.0),
    node("fast2", "NVIDIA V100", 4, 4.0),
]


def options(asked, nodes, *args, **more):
    """On *nodes* of which strangers use nothing."""
    spaces = [NodeSpace(each, each.capacity.host_memory_bytes) for each in nodes]
    return choice.options(asked, spaces, *args, **more)


@pytest.fixture(scope="module")
def estimators():
    traces = [
        Trace(network, gpu, gpus, batch, iteration_s=scale * speed * batch / 100, nodes=nodes)
        for network, scale in (("a", 1.0), ("b", 3.0))
        for gpu, speed in (("k80", 4.0), ("v100", 1.0))
        for gpus, nodes in ((1, 1), (2, 1), (4, 1), (8, 2))
        for batch in (8, 16, 32, 64)
    ]
    return Estimators.fit(traces, fitted_at=datetime(2026, 1, 2, tzinfo=UTC))


def job(**resources):
    return TrainingJob.model_validate(
        {
            "name": "t",
            "image": "python:3.11",
            "command": ["python"],
            "resources": {"gpus": 1, **resources},
            "training": {"network": "a", "batch_size": 32, "samples": 320_000, "epochs": 10},
        }
    )


def test_each_type_and_count_is_an_option_packed_and_spread(estimators):
    found = options(job(), SITE, estimators)
    packed = {("k80", 1, 1), ("k80", 2, 1), ("v100", 1, 1), ("v100", 2, 1), ("v100", 4, 1)}
    spread = {("v100", 2, 2), ("v100", 4, 2), ("v100", 8, 2)}
    assert {(o.gpu_type, o.gpus, o.node_count) for o in found} == packed | spread
    found = options(job(), SITE, estimators, gangs=False)
    assert {(o.gpu_type, o.gpus, o.node_count) for o in found} == packed


def test_three_gpus_are_spread_in_equal_parts(estimators):
    odd = [node("a", "NVIDIA V100", 3, 1.0), node("b", "NVIDIA V100", 1, 1.0)]
    found = {(o.gpus, o.node_count): o.nodes for o in options(job(), odd, estimators)}
    assert found.keys() == {(1, 1), (2, 1), (3, 1), (2, 2)}
    assert set(found[2, 2]) == {"a", "b"}


def test_where_nothing_is_learnt_every_way_says_what_other_runs_lasted(estimators):
    """As the dry run of the same job does."""
    others = Span(10.0, 20.0, 40.0), "3 runs of its owner lasted"
    unknown = job().model_copy(update={"training": Training(), "image": "other:1"})
    for option in options(unknown, SITE, Estimators(), usual=others):
        assert option.prediction.runtime_s == 20.0
        assert "3 runs of its owner lasted" in option.prediction.basis
        assert option.prediction.cost == pytest.approx(20 / HOUR_S * option.price_per_hour)
    assert "lasted" not in options(job(), SITE, estimators, usual=others)[0].prediction.basis


def test_an_option_says_how_much_faster_it_is_than_one_gpu_and_at_which_efficiency(estimators):
    found = {(o.gpu_type, o.gpus, o.node_count): o for o in options(job(), SITE, estimators)}
    one, four = found["v100", 1, 1], found["v100", 4, 1]
    assert four.speed_up == pytest.approx(one.prediction.runtime_s / four.prediction.runtime_s)
    assert four.efficiency_frac == pytest.approx(four.speed_up / 4)
    assert one.speed_up == 1.0
    nothing_known = job().model_copy(update={"training": Training(), "image": "other:1"})
    assert {o.speed_up for o in options(nothing_known, SITE, Estimators())} == {None}


def test_cost_is_time_times_the_price_of_what_is_held(estimators):
    for o in options(job(), SITE, estimators):
        price = o.gpus * (0.5 if o.gpu_type == "k80" else 4.0)
        assert o.prediction.cost == pytest.approx(o.prediction.runtime_s / HOUR_S * price)


def test_no_option_of_the_pareto_set_is_beaten_and_every_other_is(estimators):
    found = options(job(), SITE, estimators)
    for o in found:
        beaten = any(
            p.done_s <= o.done_s and p.prediction.cost <= o.prediction.cost and p is not o
            and (p.done_s, p.prediction.cost) != (o.done_s, o.prediction.cost)
            for p in found
        )  # fmt: skip
        assert o.pareto is not beaten


def test_the_fastest_and_the_cheapest_are_chosen(estimators):
    fast = options(job(), SITE, estimators, prefer=Prefer.FASTEST)
    cheap = options(job(), SITE, estimators, prefer=Prefer.CHEAPEST)
    assert fast[0].chosen
    assert fast[0].done_s == min(o.done_s for o in fast)
    assert cheap[0].prediction.cost == min(o.prediction.cost for o in cheap)
    assert sum(o.chosen for o in cheap) == 1


def test_budget_and_deadline_are_kept_by_the_upper_end(estimators):
    every = options(job(), SITE, estimators)
    budget = sorted(o.prediction.runtime_high_s / HOUR_S * o.price_per_hour for o in every)[2]
    found = options(job(), SITE, estimators, budget=budget)
    assert [o.within for o in found].count(True) == 3
    assert found[0].within
    assert found[0].chosen
    none = options(job(), SITE, estimators, deadline_s=1.0)
    assert not any(o.chosen or o.within for o in none)


def test_where_nothing_fits_no_option_is_starred_and_the_nearest_comes_first(estimators):
    cheap = options(job(), SITE, estimators, budget=0.001)
    assert not any(o.pareto or o.chosen for o in cheap)
    upper = [o.prediction.runtime_high_s / HOUR_S * o.price_per_hour for o in cheap]
    assert upper[0] == min(upper)
    said = choice.nothing_fits(choice.document(cheap[0]), 0.001, None)
    assert said.startswith("nothing keeps to a budget of 0.001 (site's currency); nearest comes ")
    assert f"costs up to {upper[0]:.4g}" in said
    unknown = options(job(), SITE, estimators, deadline_s=60.0, wait_s=lambda _: None)
    assert "of nothing can be told" in choice.nothing_fits(choice.document(unknown[0]), None, 60.0)


def test_no_number_of_gpus_is_said_to_be_faster_than_so_many_can_be():
    traces = [
        Trace("a", gpu, gpus, batch, iteration_s=batch / 100 * gpus**-0.4, nodes=1)
        for gpu in ("k80", "v100")
        for gpus in (1, 2, 4)
        for batch in (8, 16, 32, 64)
    ]
    bold = Estimators.fit(traces, fitted_at=datetime(2026, 1, 2, tzinfo=UTC))
    found = [o for o in options(job(), SITE, bold) if o.speed_up is not None]
    assert {o.gpus for o in found} == {1, 2, 4, 8}
    assert all(o.efficiency_frac <= 1.0 for o in found)
    assert all(o.prediction.runtime_low_s <= o.prediction.runtime_s for o in found)


def test_the_wait_counts_towards_the_end(estimators):
    def busy(option):
        return 1e9 if "fast" in option.nodes else 0.0

    assert options(job(), SITE, estimators, wait_s=busy)[0].gpu_type == "k80"


def test_a_wish_for_a_type_is_kept_and_a_drained_node_left_out(estimators):
    assert {o.gpu_type for o in options(job(gpu_type="k80"), SITE, estimators)} == {"k80"}
    drained = [node("d", "NVIDIA V100", 4, 1.0, state=NodeState.DRAINING)]
    assert options(job(), drained, estimators) == []


def test_of_a_node_with_several_products_only_those_of_one_count(estimators):
    def mixed(name):
        both = [*[("NVIDIA V100", 16)] * 2, *[("NVIDIA A100", 40)] * 2]
        cards = tuple(Gpu(f"{name}-{i}", i, gpu, size * GIB) for i, (gpu, size) in enumerate(both))
        return Node(name, "gpu", Capacity(32, 256 * GIB, cards))

    def ways(asked, *nodes):
        return {(o.gpu_type, o.gpus, o.nodes) for o in options(asked, nodes, estimators)}

    a, b = mixed("a"), mixed("b")
    ones = {("a100", 1, ("a",)), ("a100", 2, ("a",))}
    assert ways(job(gpu_type="A100"), a) == ones
    assert ways(job(), a) == ones | {("v100", 1, ("a",)), ("v100", 2, ("a",))}
    assert ways(job(gpu_memory="32GiB"), a) == ones
    assert ("a100", 4, ("a", "b")) in ways(job(gpu_type="A100"), a, b)


def test_what_does_not_fit_is_no_option(estimators):
    big = job(gpu_memory="32GiB")
    assert options(big, SITE, estimators) == []
    assert options(big, [node("h", "NVIDIA V100", 1, 1.0, memory=40 * GIB)], estimators)


def test_the_cpu_is_an_option_for_jobs_without_gpus(estimators):
    found = options(job(gpus=0), SITE, estimators)
    assert [o.gpu_type for o in found] == ["cpu"]
    assert set(found[0].nodes) == {"slow", "fast", "fast2"}


def test_nothing_known_is_little_of_the_node_and_whole_gpus(estimators):
    """Of the same job on other hardware, each way says what it would be given there."""
    unknown = TrainingJob.model_validate(
        {"name": "u", "image": "i:1", "command": ["x"], "resources": {"gpus": 1, "cpus": 8}}
    )
    found = {
        (o.gpu_type, o.gpus): o for o in options(unknown, SITE, estimators) if o.node_count == 1
    }
    assert found["v100", 1].demand.host_memory_bytes == 4 * GIB
    assert found["v100", 2].demand.host_memory_bytes == 8 * GIB
    assert found["k80", 1].demand.host_memory_bytes == 4 * GIB
    assert all(o.has_whole_gpus and o.demand.gpu_memory_bytes == 0 for o in found.values())
    assert choice.document(found["k80", 1])["whole_gpus"] is True
    declared = options(job(gpu_memory="4GiB"), SITE, estimators)
    assert not any(o.has_whole_gpus for o in declared)


def test_a_known_network_gets_its_share_of_a_gpu_before_its_first_run():
    def on_one_v100(**training):
        asked = job()
        asked = asked.model_copy(update={"training": asked.training.model_copy(update=training)})
        found = options(asked, SITE, Estimators())
        return next(o for o in found if (o.gpu_type, o.gpus) == ("v100", 1))

    known = on_one_v100(network="resnet50", framework="pytorch")
    low, high = known.gpu_memory_interval_bytes
    assert low < high < known.demand.gpu_memory_bytes <= 16 * GIB
    assert not known.has_whole_gpus
    # A guess keeps nobody out.
    larger = on_one_v100(network="resnet50", framework="pytorch", batch_size=4096)
    assert larger.demand.gpu_memory_bytes == 16 * GIB
    unknown = on_one_v100()
    assert unknown.has_whole_gpus
    assert unknown.gpu_memory_interval_bytes is None


def test_of_a_range_one_of_its_sizes_is_chosen(estimators):
    found = options(job(gpus="2-3"), SITE, estimators)
    assert (found[0].gpus, found[0].node_count, found[0].chosen) == (3, 1, True)
    assert {(o.gpus, o.node_count) for o in found if o.within} == {(2, 1), (3, 1)}
    assert (8, 2) in {(o.gpus, o.node_count) for o in found}, "what others would take is told"
    wide = options(job(gpus="1-4", nodes="1-2"), SITE, estimators, prefer=Prefer.CHEAPEST)
    assert wide[0].within
    assert (6, 2) not in {(o.gpus, o.node_count) for o in wide}


def test_the_size_that_is_asked_for_is_among_the_options(estimators):
    four = [*SITE, node("fast3", "NVIDIA V100", 4, 4.0), node("fast4", "NVIDIA V100", 4, 4.0)]
    found = options(job(gpus=2, nodes=2), four, estimators)
    assert (2, 4) in {(o.node_count, o.gpus) for o in found}, "(4, 1) is how far it can be spread"


def test_a_job_over_nodes_without_gpus_has_its_own_numbers_of_nodes(estimators):
    found = options(job(gpus=0, nodes="2-3"), SITE, estimators)
    assert {o.node_count: o.within for o in found} == {1: False, 2: True, 3: True}
    prices = {o.node_count: o.price_per_hour for o in found}
    assert (prices[2], prices[3]) == (2 * prices[1], 3 * prices[1])
    alone = options(job(gpus=0, nodes="2-3"), SITE, estimators, gangs=False)
    assert [o.node_count for o in alone] == [1]


def test_nothing_is_an_option_that_may_never_be_held(estimators):
    found = options(job(), SITE, estimators, is_allowed=lambda option: option.gpus <= 2)
    assert {o.gpus for o in found} == {1, 2}


def test_what_may_start_at_no_known_time_keeps_to_no_deadline_and_is_no_choice(estimators):
    def wait_s(option):
        return 60.0 if option.gpu_type == "k80" else None

    found = options(job(), SITE, estimators, wait_s=wait_s)
    assert found[0].gpu_type == "k80", "V100s are faster, and free nobody knows when"
    assert {o.done_s is None for o in found if o.gpu_type == "v100"} == {True}
    late = options(job(), SITE, estimators, wait_s=wait_s, deadline_s=100 * HOUR_S)
    assert {o.within for o in late if o.gpu_type == "v100"} == {False}
    nobody_knows = options(job(), SITE, estimators, wait_s=lambda _: None)
    assert nobody_knows[0].gpu_type == "v100"
    assert nobody_knows[0].chosen
    assert nobody_knows[0].pareto
