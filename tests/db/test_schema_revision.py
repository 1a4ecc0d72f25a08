"""The rule by which code and schemas of different versions go together."""

import pytest

from broker.db.schema_revision import can_be_served, is_before_baseline, is_behind


@pytest.mark.parametrize(
    ("revision", "known", "served"),
    [
        ("0001_baseline", "0001_baseline", True),
        ("0002_min_0001", "0001_baseline", True),
        ("0003_min_0001", "0001_baseline", True),
        ("0003_min_0002", "0001_baseline", False),
        ("0003_min_0002", "0002_min_0001", True),
        ("0001_baseline", "0002_min_0001", False),
        (None, "0001_baseline", False),
        ("4b1d0f00c0de", "0001_baseline", False),
        ("0002_min_0001_and_more", "0001_baseline", False),
        ("0001", "0001_baseline", False),
        ("0078_since_0001", "0001_baseline", False),
    ],
)
def test_code_serves_its_own_schema_and_newer_ones_that_kept_what_it_needs(
    revision: str | None, known: str, served: bool
) -> None:
    assert can_be_served(revision, known) is served


@pytest.mark.parametrize(
    ("revision", "behind"),
    [(None, True), ("0001_baseline", True), ("0002_min_0001", False), ("0003_min_0001", False), ("x", False)],
)
def test_a_schema_is_behind_that_a_migration_would_help(revision: str | None, behind: bool) -> None:
    assert is_behind(revision, "0002_min_0001") is behind


@pytest.mark.parametrize(
    ("revision", "early"),
    [
        ("0001", True),
        ("0078_since_0001", True),
        ("0001_baseline", False),
        ("0002_min_0001", False),
        ("x", False),
        (None, False),
    ],
)
def test_a_schema_of_a_build_before_the_first_release_is_known_by_its_name(
    revision: str | None, early: bool
) -> None:
    assert is_before_baseline(revision) is early
