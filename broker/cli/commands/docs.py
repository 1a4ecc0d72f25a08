"""`broker docs`: the documentation that is installed with this program."""

from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

import click

from broker.client.calling import local
from broker.client.output import Output, Shown
from broker.client.stop import Misuse


@local("docs", "broker docs", "broker docs runbooks", "broker docs runbooks disk")
@click.argument("page", required=False)
@click.argument("words", metavar="[WORD...]", nargs=-1)
def docs(_: Output, *, page: str | None, words: tuple[str, ...]) -> Shown:
    """List the pages of the documentation, or print one, or its sections whose titles have all the words."""
    pages = {one.name.removesuffix(".md"): one for one in _directory().iterdir() if one.name.endswith(".md")}
    if page is None:
        titles = {name: _title(pages[name]) for name in sorted(pages)}
        rows = [[name, title] for name, title in titles.items()]
        return Shown(data=titles, columns=("page", "title"), rows=rows)
    found = pages.get(page.removeprefix("docs/").removesuffix(".md"))
    if found is None:
        raise Misuse(f"there is no page {page!r}; `broker docs` lists the pages")
    text = found.read_text(encoding="utf-8")
    if words:
        text = "\n".join(part for title, part in sections(text) if _has_all(title, words))
        if not text:
            raise Misuse(
                f"no section of {page} has {' '.join(words)!r} in its title; `broker docs {page}` prints all"
            )
    return Shown(data={"page": page, "text": text}, script=text)


def sections(text: str) -> list[tuple[str, str]]:
    """The second-level sections of a page by their titles, each with its subsections."""
    found: list[tuple[str, list[str]]] = []
    in_code = False
    for line in text.splitlines():
        in_code ^= line.startswith("```")
        if line.startswith("## ") and not in_code:
            found.append((line.removeprefix("## "), []))
        if found:
            found[-1][1].append(line)
    return [(title, "\n".join(lines)) for title, lines in found]


def _has_all(title: str, words: tuple[str, ...]) -> bool:
    return all(word.lower() in title.lower() for word in words)


def _title(page: Traversable) -> str:
    with page.open(encoding="utf-8") as lines:
        return lines.readline().removeprefix("# ").strip()


def _directory() -> Traversable:
    shipped = files("broker").joinpath("_shipped", "docs")
    return shipped if shipped.is_dir() else Path(__file__).parents[3] / "docs"  # in a checkout


COMMANDS = docs
