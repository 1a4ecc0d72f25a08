"""What a comment, a docstring or a page cites can be opened by whoever reads it: nothing outside the repository."""

import re
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.fixtures.broker import repository

# One id, a list or a range of them: (A7), (A4, A7), (A3-A7).
_ID = r"[A-M]\d{1,2}"
_IDS = rf"{_ID}(?:(?:, |[^\w\s,]){_ID})*"
_CITED = re.compile(rf"\(({_IDS})(?:[,;:.] [^)]*)?\)|^\W*({_IDS})(?=[:;.,]|$)|[;,] ({_IDS})\)", re.MULTILINE)
# Of what nobody finds here: marks of a legend, sections of a document without a name, tickets, notes.
_NOWHERE = re.compile(
    r"\[[A-Z]\](?!\()|§|\bdesign section|\bdesign \d|\bthe design (?:sketch|has|says|let|measured)"
    r"|\((?:design|issue|facts?)\b|\bissues? \d|\bissue:|\bFacts:|google-pubsub\.md|(?<!-)\bemulator\.md"
    r"|codebase\.md|worked-systems\.md|\b[A-M]\d{1,2} \(\d",
    re.IGNORECASE,
)
# A file or a directory by its path from the root of the repository, in prose or in a command.
_PATH = re.compile(
    r"(?<![\w/.<$*@~-])(?:api_spec|benchmarks|broker|deploy|docs|examples|migrations|tests)(?:/[\w.-]*\w)+"
)
_END = re.compile(r"`([\w/.-]+\.(?:py|sql|md|toml|yaml|lark))`")
_END_IN_CODE = re.compile(r"(?<![\w/.<*{-])([\w/-]+\.(?:py|sql|lark))\b")
_FOLDER = re.compile(r"`((?:[\w.-]+/)+)`")
_DECISION = re.compile(r"\b(?:decision |docs/decisions/)(\d{4})", re.IGNORECASE)
# Files that an operator or a run of the tests makes.
_MADE_LATER = {"deploy/compose/database-password", "faults-found/"}
_DOCSTRING = re.compile(r'^[ \t]*"""(.*?)"""', re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"(?:^|\s)#(.*)$", re.MULTILINE)
_ROW = re.compile(r"^\| ([A-M]\d[^|]*) \|", re.MULTILINE)


@cache
def _files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files"], cwd=repository(), capture_output=True, text=True, check=True)
    paths = [repository() / name for name in listed.stdout.splitlines()]
    kinds = {".py", ".md", ".sql", ".lark", ".toml", ".yaml", ".mako", ".sh"}
    # The page of what may not be said says it.
    return [path for path in paths if path.suffix in kinds and path != Path(__file__) and path.exists()]


@cache
@cache
def _prose(path: Path) -> str:
    """What is written for readers: of a program its comments and docstrings, of a page all of it."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return "\n".join([*_DOCSTRING.findall(text), *_COMMENT.findall(text)])  # a tenth of the time of a tokenizer
    if path.suffix == ".md":
        return text
    marks = "--" if path.suffix == ".sql" else "//" if path.suffix == ".lark" else "#"
    return "\n".join(line.partition(marks)[2] for line in text.splitlines() if marks in line)


def _found(check: Callable[[str], list[str]]) -> dict[str, list[str]]:
    """What it finds in each file, of those where it finds anything."""
    found = {str(path.relative_to(repository())): check(_prose(path)) for path in _files()}
    return {name: what for name, what in found.items() if what}


@cache
def _tracked() -> list[str]:
    """The paths of all files in the repository, and of the directories that have them, which end with a slash."""
    listed = subprocess.run(["git", "ls-files"], cwd=repository(), capture_output=True, text=True, check=True)
    files = listed.stdout.splitlines()
    return files + sorted({f"{folder}/" for file in files for folder in Path(file).parents})


@cache
def _ends() -> set[str]:
    """Every end of a path that begins with a whole name: `log/messages.py` for broker/core/log/messages.py."""
    return {path[at:] for path in _tracked() for at in range(len(path)) if at == 0 or path[at - 1] == "/"}


def _spread(ids: str) -> Iterator[str]:
    """The single ones of a list with ranges."""
    for part in ids.split(", "):
        ends = re.findall(_ID, part)
        for number in range(int(ends[0][1:]), int(ends[-1][1:]) + 1):
            yield f"{part[0]}{number}"


@cache
def _requirements() -> dict[str, str]:
    """The rows of docs/requirements.md by their ids."""
    page = (repository() / "docs" / "requirements.md").read_text(encoding="utf-8")
    rows = re.findall(rf"^\| ({_ID}) (\|.*)$", page, re.MULTILINE)
    assert len(rows) == len(dict(rows))
    return dict(rows)


def test_what_is_cited_is_in_the_repository_or_public() -> None:
    assert _found(_NOWHERE.findall) == {}


def test_paths_and_decisions_that_are_named_exist() -> None:
    decisions = {page.name[:4] for page in (repository() / "docs" / "decisions").glob("*.md")}

    def missing(prose: str) -> list[str]:
        named = {path for path in _PATH.findall(prose) if not re.match(r"docs/decisions/\d{4}$", path)}
        paths = [path for path in sorted(named - _MADE_LATER) if not (repository() / path).exists()]
        return paths + [number for number in _DECISION.findall(prose) if number not in decisions]

    assert _found(missing) == {}


def test_paths_that_scripts_name_exist() -> None:
    commands = "\n".join((repository() / name).read_text(encoding="utf-8") for name in (".ci/run", "Makefile"))
    named = set(_PATH.findall(commands))
    assert "tests/db" in named
    assert {path for path in named if not (repository() / path).exists()} == set()


def test_files_and_directories_that_are_named_by_their_ends_exist() -> None:
    """As `core/log/messages.py`, `acknowledge.sql` and `core/log/`; the changelog describes earlier layouts."""

    def missing(prose: str, *patterns: re.Pattern[str]) -> list[str]:
        named = {end for pattern in patterns for end in pattern.findall(prose)}
        return sorted(named - _ends() - _MADE_LATER)

    pages = [path for path in _files() if path.suffix == ".md" and path.name != "CHANGELOG.md"]
    of_pages = {page.name: missing(_prose(page), _END, _FOLDER) for page in pages}
    assert {name: paths for name, paths in of_pages.items() if paths} == {}
    code = [path for path in _files() if path.suffix in {".py", ".sql", ".lark"}]
    of_code = {str(path.relative_to(repository())): missing(_prose(path), _END_IN_CODE, _FOLDER) for path in code}
    assert {name: paths for name, paths in of_code.items() if paths} == {}


def test_ids_of_requirements_are_explained() -> None:
    def unexplained(prose: str) -> list[str]:
        cited = [next(filter(None, groups)) for groups in _CITED.findall(prose)] + _ROW.findall(prose)
        return [one for ids in cited for one in _spread(ids) if one not in _requirements()]

    assert _found(unexplained) == {}


def test_each_requirement_says_where_it_is_documented_and_tested() -> None:
    """Or that it is not met yet; whether the links lead somewhere is tested for all pages."""
    assert len(_requirements()) > 60
    for id_, row in _requirements().items():
        _, _, documentation, tests, _ = row.split("|")
        if "Not yet." in row:
            assert not documentation.strip() + tests.strip(), id_
        else:
            assert "](" in documentation, id_
            assert "](../tests/" in tests, id_


def test_the_readme_names_no_ids() -> None:
    readme = (repository() / "README.md").read_text(encoding="utf-8")
    assert re.findall(rf"\b{_ID}\b", readme) == []


def test_no_docstring_is_only_an_id() -> None:
    alone = re.compile(rf"^(?:{_IDS})\W*$", re.MULTILINE)
    assert {name: ids for name, ids in _found(alone.findall).items() if name.endswith(".py")} == {}


@pytest.mark.parametrize(
    "said",
    [
        "# Acks lock rows in key order [T].",
        '"""The rules of claims (design section 4)."""',
        "# (google-pubsub.md 7.1)",
        '"""A8 (7.2): each message once."""',
        "# asked for in issue 7",
        "Facts: what Google does",
        "The design sketches rows of keys.",
    ],
)
def test_citations_of_nothing_are_found(said: str) -> None:
    assert _NOWHERE.search(said)
