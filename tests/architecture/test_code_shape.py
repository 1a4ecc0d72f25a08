"""The shape of the code: small files, small functions, every module says what it is, imports go downward."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.broker import repository

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 40
MODULES = sorted((repository() / "broker").rglob("*.py"))


def _name(path: Path) -> str:
    return str(path.relative_to(repository()))


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@pytest.mark.parametrize("path", MODULES, ids=_name)
def test_a_module_is_small_and_so_are_its_functions_and_it_says_what_it_is(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    assert len(text.splitlines()) <= MAX_FILE_LINES
    for function in _functions(tree):
        assert (function.end_lineno or 0) - function.lineno + 1 <= MAX_FUNCTION_LINES, function.name
    if not path.name.startswith("_"):
        assert ast.get_docstring(tree)


def test_packages_are_empty_so_that_the_import_path_is_the_file_path() -> None:
    assert [path for path in MODULES if path.name == "__init__.py" and path.read_text().strip()] == []


def test_the_import_contracts_hold() -> None:
    lint_imports = Path(sys.executable).parent / "lint-imports"
    linted = subprocess.run(
        [lint_imports, "--no-cache"], cwd=repository(), capture_output=True, text=True, check=False, timeout=100
    )
    assert linted.returncode == 0, linted.stdout


def test_no_file_has_the_marks_of_a_merge() -> None:
    listed = subprocess.run(
        ["git", "grep", "-lE", "^(<{7}|>{7}) "], cwd=repository(), capture_output=True, text=True
    )
    assert listed.stdout == ""


@pytest.mark.parametrize("path", MODULES, ids=_name)
def test_no_timer_is_asked_for_its_time(path: Path) -> None:
    """uvloop gives a plain handle, which has none, for what is less than half a millisecond away."""
    calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    assert not [func.attr for func in calls if isinstance(func, ast.Attribute) and func.attr == "when"]
