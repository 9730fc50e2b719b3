"""Every kind of bad input ends in one line: file and line, field, value, what is allowed."""

import pytest

from headway.errors import InvalidInput
from headway.model.job import TrainingJob
from headway.model.job_parts import Dataset, Resources
from headway.model.job_text import job_from_document, read_job
from tests.support.bad_values import (
    COMMANDS,
    CONFIGS,
    ENVIRONMENT,
    GOOD,
    HIDDEN,
    IMAGES,
    LABEL,
    LABELLED,
    LABELS,
    NAME,
    NAMES,
    NUMBERS,
    OUTPUT,
    OUTPUTS,
    PATHS,
    PORTS,
    SECRETS,
    SIZE,
    UNKNOWN,
    text,
)


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


@pytest.mark.parametrize(("written", "shown"), NAMES)
@pytest.mark.parametrize("key", ["name", "team"])
def test_names(key: str, written: str, shown: str) -> None:
    says(refused(text(f"{key}: {written}", without=key)), "job.yaml:4", key, shown, NAME)


@pytest.mark.parametrize(("written", "shown"), [each for each in NAMES if each[1] != '""'])
def test_owners(written: str, shown: str) -> None:
    """It may be left out, or be empty: nobody has said whose the job is."""
    says(refused(text(f"owner: {written}")), "job.yaml:4", "owner", shown, "or leave it out")


@pytest.mark.parametrize("written", LABELS)
@pytest.mark.parametrize("field", LABELLED)
def test_labels(field: str, written: str) -> None:
    group, key = field.split(".")
    error = refused(text(f"{group}:", f"  {key}: {written}"))
    assert (error.field, error.where) == (field, "job.yaml:5")
    assert error.allowed.startswith(LABEL)


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


@pytest.mark.parametrize(("written", "shown", "allowed"), IMAGES)
def test_images(written: str, shown: str, allowed: str) -> None:
    error = refused(text(f"image: {written}", without="image"))
    says(error, "job.yaml:4", "image", shown, allowed)


@pytest.mark.parametrize(("written", "field", "shown", "allowed"), COMMANDS)
def test_commands(written: str, field: str, shown: str, allowed: str) -> None:
    error = refused(text(f"command: {written}", without="command"))
    says(error, "job.yaml:4", field, shown, allowed)


@pytest.mark.parametrize(("written", "field", "shown", "allowed"), ENVIRONMENT)
def test_environment(written: str, field: str, shown: str, allowed: str) -> None:
    says(refused(text("env:", f"  {written}")), "job.yaml:5", field, shown, allowed)


@pytest.mark.parametrize(("written", "field", "shown", "allowed"), CONFIGS)
def test_config(written: str, field: str, shown: str, allowed: str) -> None:
    says(refused(text(f"config: {written}")), "job.yaml:4", field, shown, allowed)


def test_all_that_is_wrong_is_told_at_once_by_its_lines() -> None:
    error = refused(text("retries: 99", "ports: [80]", "resources: {cpus: 0}"))
    assert str(error).split(". Also wrong: ") == [
        "job.yaml:4 retries: got 99; give a whole number between 0 and 10",
        "job.yaml:5 ports[0]: got 80; give a whole number between 1024 and 65535",
        "job.yaml:6 resources.cpus: got 0; give a number between 0.01 and 4096",
    ]


def test_a_key_that_two_may_be_meant_by_names_both() -> None:
    error = refused(text("resources: {memory: 8GiB}"))
    said = "did you mean resources.gpu_memory or resources.host_memory?"
    says(error, "job.yaml:4", "resources.memory", '"8GiB"', said)


@pytest.mark.parametrize(("written", "field", "allowed"), SECRETS)
def test_secrets_are_names_and_never_shown(written: str, field: str, allowed: str) -> None:
    says(refused(text("secrets:", f"  {written}")), "job.yaml:5", field, HIDDEN, allowed)


def test_a_variable_comes_from_one_place() -> None:
    error = refused(text("env: {A: x}", "secrets: {A: block}"))
    says(error, "job.yaml:5", "secrets.A", '"block"', "it is in env too; give it once")


@pytest.mark.parametrize(("written", "field", "shown", "allowed"), PORTS)
def test_ports(written: str, field: str, shown: str, allowed: str) -> None:
    says(refused(text(f"ports: {written}")), "job.yaml:4", field, shown, allowed)


@pytest.mark.parametrize(("written", "shown", "allowed"), PATHS)
def test_addresses(written: str, shown: str, allowed: str) -> None:
    error = refused(text("dataset:", f"  uri: {written}"))
    says(error, "job.yaml:5", "dataset.uri", shown, allowed)


@pytest.mark.parametrize("pattern", OUTPUTS)
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
