"""The version of a build: from git in a checkout, from PKG-INFO in a source archive."""

import re
import subprocess
from pathlib import Path

import pytest
from packaging.version import Version

from broker.version import NEXT_RELEASE, version, version_of_sources
from tests.fixtures.broker import repository


def _git(directory: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false")
    command = ["git", "-C", directory, *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with one commit and no tag."""
    _git(tmp_path, "init", "--quiet")
    (tmp_path / "file").write_text("one")
    _git(tmp_path, "add", "file")
    _git(tmp_path, "commit", "--quiet", "--message=One", "--date=@0")
    return tmp_path


def test_a_checkout_without_tags_names_its_commit(checkout: Path) -> None:
    commit = _git(checkout, "rev-parse", "HEAD")
    found = version_of_sources(checkout)
    assert re.fullmatch(rf"{re.escape(NEXT_RELEASE)}\.dev\d{{12}}\+g{commit[:12]}", found)
    assert str(Version(found)) == found  # package tools do not normalize it to something else


def test_a_later_commit_is_a_later_version_and_a_change_shows(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = version_of_sources(checkout)
    (checkout / "file").write_text("two")
    assert version_of_sources(checkout) == f"{first}.dirty"
    monkeypatch.setenv("GIT_COMMITTER_DATE", "2090-01-01T00:00:00Z")
    _git(checkout, "commit", "--quiet", "--all", "--message=Two")
    second = version_of_sources(checkout)
    assert second.startswith(f"{NEXT_RELEASE}.dev209001010000+g")
    assert Version(second) > Version(first)


def test_a_repository_that_the_environment_names_is_not_asked(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = version_of_sources(checkout)
    monkeypatch.setenv("GIT_DIR", str(repository() / ".git"))
    assert version_of_sources(checkout) == expected


def test_sources_below_another_repository_are_not_taken_for_it(checkout: Path) -> None:
    unpacked = checkout / "unpacked"
    unpacked.mkdir()
    assert version_of_sources(unpacked) == f"{NEXT_RELEASE}.dev0"
    (unpacked / "PKG-INFO").write_text("Metadata-Version: 2.4\nName: pubsub-broker\nVersion: 1.2.3\n")
    assert version_of_sources(unpacked) == "1.2.3"


def test_the_running_program_has_the_version_of_its_checkout() -> None:
    commit = _git(repository(), "rev-parse", "HEAD")
    assert f"+g{commit[:12]}" in version()
