"""What people's programs import from the package itself."""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import headway


def test_type_checkers_see_what_programs_get() -> None:
    tree = ast.parse(Path(headway.__file__).with_suffix(".pyi").read_text())
    stated = {
        alias.asname: getattr(import_module(each.module or ""), alias.name)
        for each in tree.body
        if isinstance(each, ast.ImportFrom)
        for alias in each.names
    }
    assert stated == {name: getattr(headway, name) for name in headway._PLACES}
    with pytest.raises(AttributeError, match="no attribute 'Jobs'"):
        headway.Jobs  # type: ignore[attr-defined] # noqa: B018


def test_the_package_alone_imports_nothing_of_itself() -> None:
    look = "import sys, headway; print([m for m in sys.modules if m.startswith('headway.')])"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
