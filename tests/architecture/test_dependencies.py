"""What is installed for development is what pyproject.toml asks for."""

import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.fixtures.broker import repository

_PROJECT = tomllib.loads((repository() / "pyproject.toml").read_text())["project"]
_NEEDED = [Requirement(text) for text in _PROJECT["dependencies"]]
_DEVELOPMENT = [Requirement(text) for text in _PROJECT["optional-dependencies"]["dev"]]
_LINES = [line for line in (repository() / "requirements-dev.lock").read_text().splitlines() if line[0] != "#"]


@pytest.mark.parametrize("needed", [*_NEEDED, *_DEVELOPMENT], ids=lambda needed: needed.name)
def test_the_lock_has_a_version_that_the_project_admits(needed: Requirement) -> None:
    pins = {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in _LINES)}
    version = pins[canonicalize_name(needed.name)]
    assert needed.specifier.contains(version), f"{version} is not in {needed.specifier}"


def test_the_lock_is_names_and_versions_only() -> None:
    """It is used as constraints, on any machine: no addresses, no paths."""
    assert [line for line in _LINES if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9._+!-]+", line)] == []


@pytest.mark.parametrize("needed", _NEEDED, ids=lambda needed: needed.name)
def test_what_the_broker_runs_on_has_a_floor_and_a_ceiling(needed: Requirement) -> None:
    assert {each.operator for each in needed.specifier} == {">=", "<"}
