"""What is installed for development is what pyproject.toml asks for."""

import re
import tomllib

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.fixtures.broker import repository

_PROJECT = tomllib.loads((repository() / "pyproject.toml").read_text())["project"]
_NEEDED = [Requirement(text) for text in _PROJECT["dependencies"]]
_DEVELOPMENT = [Requirement(text) for text in _PROJECT["optional-dependencies"]["dev"]]
_LINES = [line for line in (repository() / "requirements-dev.lock").read_text().splitlines() if line[0] != "#"]


def test_the_lock_has_versions_that_the_project_admits() -> None:
    pins = {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in _LINES)}
    locked = [(needed, pins.get(canonicalize_name(needed.name))) for needed in (*_NEEDED, *_DEVELOPMENT)]
    assert [
        f"{needed}: {version}"
        for needed, version in locked
        if not version or not needed.specifier.contains(version)
    ] == []


def test_the_lock_is_names_and_versions_only() -> None:
    """It is used as constraints, on any machine: no addresses, no paths."""
    assert [line for line in _LINES if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9._+!-]+", line)] == []


def test_what_the_broker_runs_on_has_a_floor_and_a_ceiling() -> None:
    bounds = {str(needed): {each.operator for each in needed.specifier} for needed in _NEEDED}
    wrong = [needed for needed, operators in bounds.items() if operators != {">=", "<"}]
    assert not wrong, wrong
