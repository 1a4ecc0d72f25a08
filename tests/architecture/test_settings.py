"""docs/settings.md lists every setting as it is."""

import re
from dataclasses import fields
from typing import Any

import pytest

from broker.cli import main
from broker.settings import Settings, load
from tests.fixtures.broker import repository

_CELL = re.compile(r"`([^`]*)`")


def _documented() -> dict[str, dict[str, str]]:
    """The table's rows by the setting's name; a cell without code is empty."""
    text = (repository() / "docs" / "settings.md").read_text(encoding="utf-8")
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| `")]
    return {
        _code(name): {
            "option": _code(option),
            "variable": _code(variable),
            "default": _code(default),
            "meaning": meaning.strip(),
        }
        for name, option, variable, default, meaning in rows
    }


def _code(cell: str) -> str:
    found = _CELL.search(cell)
    return found[1] if found else ""


def _options() -> dict[str, str]:
    """The options of `broker serve` by the setting that each sets."""
    subparsers: Any = next(a for a in main._parser()._actions if a.dest == "command")
    return {
        action.dest: action.option_strings[-1]
        for action in subparsers.choices["serve"]._actions
        if action.dest != "help"
    }


def test_every_setting_is_documented_and_every_documented_one_exists() -> None:
    assert list(_documented()) == [setting.name for setting in fields(Settings)]


@pytest.mark.parametrize("setting", fields(Settings), ids=lambda setting: setting.name)
def test_a_setting_is_documented_with_its_option_variable_default_and_meaning(setting: Any) -> None:
    assert _documented()[setting.name] == {
        "option": _options().get(setting.name, ""),
        "variable": f"BROKER_{setting.name.upper()}",
        "default": str(setting.default),
        "meaning": setting.metadata["meaning"],
    }


def test_every_option_of_serve_is_a_setting() -> None:
    assert _options().keys() <= {setting.name for setting in fields(Settings)}


@pytest.mark.parametrize("setting", fields(Settings), ids=lambda setting: setting.name)
def test_a_setting_is_read_from_its_variable_and_an_option_goes_first(setting: Any) -> None:
    environment = {_documented()[setting.name]["variable"]: "7"}
    assert getattr(load({}, environment), setting.name) == type(setting.default)("7")
    assert getattr(load({setting.name: "8"}, environment), setting.name) == "8"


def test_database_url_is_understood_without_a_prefix() -> None:
    assert load({}, {"DATABASE_URL": "postgresql:///b"}).database_url == "postgresql:///b"


def test_a_value_of_the_wrong_kind_is_refused_by_the_variable_s_name() -> None:
    with pytest.raises(ValueError, match="BROKER_WORKERS='many' is not a int"):
        load({}, {"BROKER_WORKERS": "many"})
