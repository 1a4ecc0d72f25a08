"""What differs on Citus is behind broker/db: statements have second forms there, found by name."""

import inspect
import re
from pathlib import Path

import pytest

from broker.db.driver import statements
from tests.fixtures.broker import repository

BROKER = repository() / "broker"
TEXTS = sorted(BROKER.rglob("*.citus.sql"))
MODULES = sorted(BROKER.rglob("*_citus.py"))
# Whether tables are distributed, and the names of what knows it.
_QUESTION = re.compile(r"\b(?:is_distributed|find_engine|engine_of|Engine|CITUS|known_to_citus|on_nodes)\b")


def test_only_the_database_layer_asks_whether_tables_are_distributed() -> None:
    asking = [
        f"{path.relative_to(BROKER)}: {found[0]}"
        for path in BROKER.rglob("*.py")
        if path.parts[len(BROKER.parts)] != "db" and (found := _QUESTION.search(path.read_text("utf-8")))
    ]
    assert asking == []


def _first(path: Path) -> Path:
    name = path.name.removesuffix("_citus.py").removesuffix(".citus.sql")
    return path.with_name(f"{name}.sql")


def test_a_second_form_stands_beside_the_first() -> None:
    assert TEXTS
    assert MODULES
    assert [str(path) for path in (*TEXTS, *MODULES) if not _first(path).exists()] == []


def test_a_statement_has_one_second_form() -> None:
    firsts = [_first(path) for path in (*TEXTS, *MODULES)]
    assert len(firsts) == len(set(firsts))


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_another_text_has_the_parameters_and_columns_of_the_first(path: Path) -> None:
    name, second = _first(path).stem, path.read_text("utf-8")
    if "-- parameters:" not in second and "-- columns:" not in second:  # it is not hot
        used = [set(re.findall(r"%\((\w+)\)s", text)) for text in (_first(path).read_text("utf-8"), second)]
        assert used[0] == used[1]
        return
    first = statements.hot(name)
    assert first.citus_statement is not None
    assert first.citus_statement.statement.columns == first.columns
    wanted = dict(first.parameters)
    if first.citus_statement.one_of:
        assert first.citus_statement.one_of in wanted
        wanted = {
            parameter.removesuffix("s") if type_.endswith("[]") else parameter: type_.removesuffix("[]")
            for parameter, type_ in first.parameters
        }
    assert dict(first.citus_statement.statement.parameters) == wanted


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_a_module_has_the_function_that_runs_in_place_of_the_statement(path: Path) -> None:
    name = _first(path).stem
    function = statements.citus_function(name, file=name)
    assert inspect.iscoroutinefunction(function)
