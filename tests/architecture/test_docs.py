"""What the documentation tells people to type, and where it sends them, exists."""

import re
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path

import click

from broker.cli.main import command_line
from broker.core.publishing.publishing_rules import RULES, Rule, Rules
from tests.architecture.surface import operations
from tests.fixtures.broker import repository
from tests.fixtures.publishing_table import ROWS, read_table

PAGES = sorted(
    repository() / name
    for name in subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=repository(),
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    if (repository() / name).exists()
)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_CURL = re.compile(
    r"curl (?:-\w+ )*?(?:-X (\w+) )?(?:-\w+ )*\"?(?:\$(url|api|URL)|http://127\.0\.0\.1:8085)([^\s\"]*)"
)
_BASES = {"url": "", "api": "/v1/projects/demo", "URL": "/v1/projects/demo", None: ""}
_SHELL = re.compile(r"```sh\n(.*?)```", re.DOTALL)
_COMMAND = re.compile(r"\s*(?:[A-Z_]+=\S+ )*broker ([a-z]+)([^#|>]*)")

_CLI = command_line()
_CONTEXT = click.Context(_CLI)


def _name(page: Path) -> str:
    return str(page.relative_to(repository()))


def _assert_nowhere(find: Callable[[Path], Iterator[str]]) -> None:
    """Names all that it finds on any page."""
    found = [f"{_name(page)}: {each}" for page in PAGES for each in find(page)]
    assert not found, "\n".join(found)


@cache
def _anchors(page: Path) -> set[str]:
    """As the usual hosts make them of headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_lead_somewhere() -> None:
    def broken(page: Path) -> Iterator[str]:
        for target in _LINK.findall(page.read_text()):
            if "://" in target:
                continue
            path, _, anchor = target.partition("#")
            linked = (page.parent / path).resolve() if path else page
            if not linked.exists() or (anchor and anchor not in _anchors(linked)):
                yield target

    _assert_nowhere(broken)


def test_calls_in_the_documentation_are_calls_of_the_broker() -> None:
    patterns: dict[str, list[re.Pattern[str]]] = {method: [] for method, _ in operations()}
    for method, path in operations():
        patterns[method].append(re.compile(re.sub(r"\\\{\w+\\\}", "[^/:]+", re.escape(path)) + r"(\?.*)?"))

    def unknown(page: Path) -> Iterator[str]:
        for method, base, rest in _CURL.findall(page.read_text()):
            path = _BASES[base or None] + rest.rstrip("`).,")
            known = any(pattern.fullmatch(path) for pattern in patterns[method or "GET"])
            # /.well-known and the like are no part of the specification of the API.
            if not known and not path.startswith("/.well-known/"):
                yield f"{method or 'GET'} {path}"

    _assert_nowhere(unknown)


def test_commands_in_the_documentation_are_commands_of_the_broker() -> None:
    def unknown(page: Path) -> Iterator[str]:
        typed = [line for block in _SHELL.findall(page.read_text()) for line in block.splitlines()]
        for line in (*typed, *re.findall(r"`([^`\n]+)`", page.read_text())):
            command = _COMMAND.match(line)
            if command and not _is_a_command(*command.groups()):
                yield line

    _assert_nowhere(unknown)


def _is_a_command(name: str, arguments: str) -> bool:
    """Whether there is one, with the options that `arguments` name."""
    called: click.Command | None = _CLI.get_command(_CONTEXT, name)
    while isinstance(called, click.Group) and arguments.strip():
        word, _, arguments = arguments.strip().partition(" ")
        called = called.get_command(_CONTEXT, word)
    if called is None:
        return False
    if any(isinstance(parameter, click.Argument) and parameter.nargs < 0 for parameter in called.params):
        arguments = re.split(r" (?=[a-z])(?<!--data-dir )", arguments.strip())[0]  # the rest is the program's
    known = {option for parameter in called.params for option in parameter.opts} | {"--help"}
    return set(re.findall(r"(?<!\S)--[a-z-]+", arguments)) <= known


def test_every_page_of_the_documentation_can_be_reached_from_the_readme() -> None:
    reached, waiting = set(), {repository() / "README.md"}
    while waiting:
        page = waiting.pop()
        reached.add(page)
        targets = {(page.parent / target.partition("#")[0]).resolve() for target in _LINK.findall(page.read_text())}
        waiting |= {target for target in targets if target.suffix == ".md" and target.exists()} - reached
    assert {_name(page) for page in PAGES if page not in reached} == set()


def test_lines_of_prose_fit_a_screen() -> None:
    def long(page: Path) -> Iterator[str]:
        prose = re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        return (line for line in prose.splitlines() if len(line) > 120 and not line.startswith("|"))

    _assert_nowhere(long)


def test_the_readme_is_short() -> None:
    assert len((repository() / "README.md").read_text().splitlines()) <= 150


def test_each_figure_of_the_readme_comes_from_the_documentation() -> None:
    docs = {name: (repository() / "docs" / name).read_text() for name in ("benchmarks.md", "reliability.md")}
    measured = set(re.findall(r"[\d,.]*\d", docs["benchmarks.md"] + docs["reliability.md"]))
    units = r"ms|/s|a second|hours|faults|messages"
    figures = re.findall(rf"(\d[\d,.]*) (?:{units})\b", (repository() / "README.md").read_text())
    assert len(figures) >= 15
    assert {figure for figure in figures if not any(one.startswith(figure) for one in measured)} == set()


def test_the_readme_counts_the_differences_to_the_emulator() -> None:
    page = (repository() / "docs" / "compared-with-the-emulator.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    assert (
        f"[{len(rows) - 1} respects](docs/compared-with-the-emulator.md)"
        in (repository() / "README.md").read_text()
    )


def test_the_decisions_are_listed_by_their_titles() -> None:
    pages = sorted((repository() / "docs" / "decisions").glob("[0-9]*.md"))
    titles = [page.read_text().partition("\n")[0].removeprefix("# ") for page in pages]
    listed = [f"* [{title[:4]}]({page.name}){title[4:]}" for title, page in zip(titles, pages, strict=True)]
    index = (repository() / "docs" / "decisions" / "README.md").read_text().splitlines()
    assert [line for line in index if line.startswith("* ")] == listed


def test_the_page_of_the_architecture_has_the_layers_that_are_enforced() -> None:
    """Those of the whole broker, and those within the core."""
    page = (repository() / "docs" / "architecture.md").read_text()
    blocks = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    drawn = [[line.partition("   ")[0].split(" | ") for line in block.splitlines()] for block in blocks[:2]]
    project = tomllib.loads((repository() / "pyproject.toml").read_text())
    contracts = [each for each in project["tool"]["importlinter"]["contracts"] if each["type"] == "layers"]
    enforced = [[layer.replace("broker.", "").split(" | ") for layer in each["layers"]] for each in contracts]
    assert [[sorted(layer) for layer in each] for each in drawn] == [
        [sorted(layer) for layer in each] for each in enforced
    ]


def test_the_page_of_publishing_rules_has_the_table_that_the_broker_applies() -> None:
    """Except for SQL, whose rules are in write_outbox_message.sql."""
    table = read_table()
    assert table.keys() - RULES.keys() == {"SQL"}
    assert [field.name for field in fields(Rules) if field.type is Rule] == list(ROWS.values())
    for name, rules in RULES.items():
        assert [getattr(rules, field) for field in ROWS.values()] == [
            getattr(table[name], field) for field in ROWS.values()
        ]
