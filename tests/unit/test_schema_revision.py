"""The rule by which code and schemas of different versions go together."""

import pytest

from broker.domain.schema_revision import can_be_served, is_behind


@pytest.mark.parametrize(
    ("revision", "known", "served"),
    [
        ("0001", "0001", True),
        ("0002_since_0001", "0001", True),
        ("0003_since_0001", "0001", True),
        ("0003_since_0002", "0001", False),
        ("0003_since_0002", "0002_since_0001", True),
        ("0002", "0001", False),
        ("0001", "0002_since_0001", False),
        (None, "0001", False),
        ("4b1d0f00c0de", "0001", False),
        ("0002_since_0001_and_more", "0001", False),
    ],
)
def test_code_serves_its_own_schema_and_newer_ones_that_kept_what_it_needs(
    revision: str | None, known: str, served: bool
) -> None:
    assert can_be_served(revision, known) is served


@pytest.mark.parametrize(
    ("revision", "behind"),
    [(None, True), ("0001", True), ("0002_since_0001", False), ("0003", False), ("x", False)],
)
def test_a_schema_is_behind_that_a_migration_would_help(revision: str | None, behind: bool) -> None:
    assert is_behind(revision, "0002_since_0001") is behind
