"""The shape of the code: every module says what it is, imports go downward, packages are empty."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from tests.fixtures.broker import repository

MODULES = sorted((repository() / "broker").rglob("*.py"))


def _name(path: Path) -> str:
    return str(path.relative_to(repository()))


def _calls(path: Path) -> Iterator[str]:
    """The names of the methods that a module calls."""
    nodes = ast.walk(ast.parse(path.read_text("utf-8")))
    return (node.func.attr for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute))


def test_every_module_says_what_it_is() -> None:
    public = [path for path in MODULES if not path.name.startswith("_")]
    assert [_name(path) for path in public if not ast.get_docstring(ast.parse(path.read_text("utf-8")))] == []


# A docstring that begins so is a fragment, which only its signature makes a sentence.
_FRAGMENT = re.compile(
    r"(?:Of|Those|These|It|Its|They|Such|That|What|Who|Whom|Whose|Which|Where|When|How|One|There|So|Also|Nothing"
    r"|Something|Nobody|Somebody|By|For|From|With|Without|Within|Until|Unless|Before|At|As)\b"
)


def _docstrings(text: str) -> Iterator[str]:
    """Yields the docstrings of the classes and functions of a module."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield ast.get_docstring(node) or ""


def test_a_docstring_begins_with_a_verb_or_a_noun_phrase() -> None:
    found = [
        f"{_name(path)}: {said}"
        for path in MODULES
        for said in _docstrings(path.read_text("utf-8"))
        if _FRAGMENT.match(said)
    ]
    assert found == []


def test_packages_have_a_docstring_and_no_code_so_that_the_import_path_is_the_file_path() -> None:
    packages = {path: ast.parse(path.read_text("utf-8")) for path in MODULES if path.name == "__init__.py"}
    assert [_name(path) for path, tree in packages.items() if not ast.get_docstring(tree)] == []
    assert [_name(path) for path, tree in packages.items() if len(tree.body) > 1] == []


def test_handlers_services_and_commands_have_no_sql() -> None:
    """Statements are in modules that are named for rows or for what they do to them."""
    named = [path for path in MODULES if re.search(r"(?:^|_)(?:service|rest|grpc|calls|command)$", path.stem)]
    assert len(named) > 80
    assert [_name(path) for path in named if _speaks_sql(path.read_text("utf-8"))] == []


_SQL = re.compile(r"\b(?:SELECT|INSERT INTO|DELETE FROM|UPDATE [a-z_]+ SET)\b")
_SQL_MODULES = re.compile(
    r"(?:sqlalchemy|psycopg\w*|broker\.db\.driver\.statements|broker\.db\.schema\.tables)(?:\.|$)"
)


def _speaks_sql(text: str) -> bool:
    modules: list[str] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules += [f"{node.module}.{alias.name}" for alias in node.names]
    return bool(_SQL.search(text)) or any(_SQL_MODULES.match(module) for module in modules)


def test_modules_that_speak_sql_are_found() -> None:
    assert _speaks_sql("from sqlalchemy import select")
    assert _speaks_sql("import psycopg")
    assert _speaks_sql("from broker.db.driver import statements")
    assert _speaks_sql("from broker.db.schema.tables import topics")
    assert _speaks_sql('await connection.execute("DELETE FROM topics")')
    assert not _speaks_sql("from broker.core.catalog import topic_rows as topics  # selects topics")


def test_each_feature_is_in_the_import_contracts() -> None:
    """Except for those that others may import, or that may import others."""
    contracts = tomllib.loads((repository() / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    features = {
        f"broker.features.{path.parent.name}" for path in repository().glob("broker/features/*/__init__.py")
    }
    operations, inspect = "broker.features.operations", "broker.features.inspect"
    by_name = {contract["name"]: contract for contract in contracts}
    assert {*by_name["Features do not know each other"]["modules"]} == features - {operations, inspect}
    assert {*by_name["Operations know no feature"]["forbidden_modules"]} == features - {operations, inspect}
    reported = by_name["Nothing imports the feature that reports on all others"]
    assert {*reported["source_modules"]} == features - {inspect}


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


def test_no_timer_is_asked_for_its_time() -> None:
    """uvloop returns a plain handle, which has no time, for a delay of less than half a millisecond."""
    asking = [_name(path) for path in MODULES for call in _calls(path) if call == "when"]
    assert asking == []
