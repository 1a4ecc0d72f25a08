"""docs/compared-with-the-emulator.md names tests that exist."""

import re

import pytest

from tests.fixtures.broker import repository

NAMED = re.findall(
    r"`(tests/[\w/]+\.py)::(\w+)`",
    (repository() / "docs" / "compared-with-the-emulator.md").read_text(encoding="utf-8"),
)


def test_each_line_names_a_test() -> None:
    assert len(NAMED) >= 19


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_the_named_test_exists(path: str, name: str) -> None:
    assert re.search(rf"^(async )?def {name}\(", (repository() / path).read_text(encoding="utf-8"), re.MULTILINE)
