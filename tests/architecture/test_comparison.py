"""docs/compared-with-the-emulator.md names tests that exist."""

import re

from tests.fixtures.broker import repository

NAMED = re.findall(
    r"`(tests/[\w/]+\.py)::(\w+)`",
    (repository() / "docs" / "compared-with-the-emulator.md").read_text(encoding="utf-8"),
)


def test_each_line_names_a_test() -> None:
    assert len(NAMED) >= 19


def test_the_named_tests_exist() -> None:
    def exists(path: str, name: str) -> bool:
        text = (repository() / path).read_text(encoding="utf-8")
        return re.search(rf"^(async )?def {name}\(", text, re.MULTILINE) is not None

    missing = [named for named in NAMED if not exists(*named)]
    assert not missing, missing
