import pytest

from headway.errors import InvalidInput
from headway.settings import read_settings


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("HEADWAY_PORT", "9", "input should be greater than or equal to 1024"),
        ("HEADWAY_PORT", "http", "valid integer"),
        ("HEADWAY_RUNTIME", "podman", "'auto', 'docker' or 'process'"),
        ("HEADWAY_CONTAINER_USER", "root", "pattern"),
    ],
)
def test_a_wrong_variable_is_named_in_one_line(monkeypatch, name, value, allowed):
    monkeypatch.setenv(name, value)
    with pytest.raises(InvalidInput, match=f"environment {name}: got") as caught:
        read_settings()
    assert allowed in str(caught.value)
    assert "\n" not in str(caught.value)
