"""From Prefect's runs to offers, and from what was decided to instructions."""

from datetime import UTC, datetime
from inspect import signature
from typing import Any
from uuid import UUID

from prefect.client.schemas.objects import FlowRun

from flows.train import train
from headway.node.grants import ToStart
from headway.worker.offers import TRAIN_PARAMETERS, instructions, offers, refused

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
    runs = {str(each.id): each for each in (made_up, given, nameless)}
    offered = offers(list(runs.values()), NAMES)
    todo = instructions(offered, [], ToStart((), ()), runs)
    assert todo.rename == {str(made_up.id): "bert"}


def test_what_prefect_offers_no_more_is_given_back_and_the_rest_starts_once() -> None:
    here, at_once, gone = run(1), run(2, RETRAIN), str(UUID(int=3))
    found = {str(each.id): each for each in (here, at_once)}
    granted = ToStart((gone, str(here.id)), (str(UUID(int=4)),))
    todo = instructions([], [str(at_once.id), str(here.id)], granted, found)
    assert todo.start == (at_once, here)
    assert todo.give_back == (gone,)
