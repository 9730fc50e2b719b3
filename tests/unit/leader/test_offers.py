"""From Prefect's runs to offers."""

from datetime import UTC, datetime
from inspect import signature
from typing import Any
from uuid import UUID

from prefect.client.schemas.objects import FlowRun

from flows.train import train
from headway.leader.offers import TRAIN_PARAMETERS, offers, refused

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
TRAIN, RETRAIN, OTHER, DELETED = (UUID(int=at) for at in range(4))
NAMES = {TRAIN: "train", RETRAIN: "retrain-estimators", OTHER: "somebody's"}


def run(at: int, flow: UUID = TRAIN, **more: Any) -> FlowRun:
    given = {"name": f"run-{at}", "created": NOON.replace(minute=at), "parameters": {}, **more}
    return FlowRun(id=UUID(int=at), flow_id=flow, **given)


def test_only_flows_of_this_installation_are_offered() -> None:
    runs = [run(1), run(2, OTHER), run(3, RETRAIN), run(4, DELETED)]
    assert [each.run_id for each in offers(runs, NAMES)] == [str(UUID(int=1)), str(UUID(int=3))]
    assert refused(runs, NAMES).keys() == {runs[1].id, runs[3].id}


def test_a_flow_gets_no_parameter_that_it_does_not_take() -> None:
    """Its processes would end at once, again and again."""
    good, bad = run(1, parameters={"job": {}}), run(2, parameters={"job": {}, "gpus\n": 8})
    assert [each.run_id for each in offers([good, bad], NAMES)] == [str(good.id)]
    ((run_id, why),) = refused([good, bad], NAMES).items()
    assert run_id == bad.id
    assert why.startswith('flow train has no parameter "gpus\\n", so its run was not started')


def test_the_parameters_of_the_flow_are_known() -> None:
    assert signature(train.fn).parameters.keys() == TRAIN_PARAMETERS


def test_the_oldest_is_offered_first_with_its_queue_and_job() -> None:
    job = {"name": "bert", "image": "image:1"}
    new = run(9, parameters={"job": job}, work_queue_name="node-a")
    old = run(1, parameters={"job": "no job"})
    first, second = offers([new, old], NAMES)
    assert (first.document, first.queue, first.submitted_at) == (None, "default", old.created)
    assert (second.document, second.queue, second.name) == (job, "node-a", "run-9")


def test_no_other_flow_has_a_job() -> None:
    (offer,) = offers([run(1, RETRAIN, parameters={"job": {"name": "x"}})], NAMES)
    assert offer.document is None


def test_a_run_is_called_by_its_job_where_prefect_made_up_its_name() -> None:
    made_up = run(1, name="vague-kakapo", parameters={"job": {"name": "bert"}})
    given = run(2, name="mine", parameters={"job": {"name": "bert"}})
    nameless = run(3, name="vague-kakapo", parameters={"job": {"name": "x" * 64}})
    named = {each.run_id: each.name for each in offers([made_up, given, nameless], NAMES)}
    others = {str(given.id): "mine", str(nameless.id): "vague-kakapo"}
    assert named == {str(made_up.id): "bert", **others}
