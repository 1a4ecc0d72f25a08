"""The code says what docs/glossary.md says, and has no coined words where the field has a word."""

import ast
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.fixtures.broker import repository


class Ban(NamedTuple):
    """Words that no identifier has, because the field has another word for the concept.

    A word is a part of an identifier between underscores or capitals, in any number.  `allowed`: whole identifiers
    in which the word means something else.
    """

    instead: str
    words: Sequence[str]
    allowed: Sequence[str] = ()


BANNED = [
    Ban("dead letter", ["dlq"]),
    Ban("delivery state", ["fate"]),
    Ban("locked backlog", ["pile"]),
    Ban("message range", ["stretch", "extent"]),
    Ban("tenant, is_contended", ["company", "party"]),
    Ban("claim target, delivery request, allocation", ["claimant", "demand", "portion"]),
    Ban("claim group", ["lane"]),
    Ban("consumer", ["puller"]),
    Ban("cursor", ["bookmark"]),
    Ban("settled", ["tombstone"]),
    Ban("outbox", ["staged", "relaying"]),
    Ban("push batch", ["parcel"]),
    Ban("capacity", ["stock", "room"]),
    Ban("query, read, poll, check", ["looking"]),
    Ban("notification, incident, report", ["news", "telling"]),
    Ban("API, listener", ["door"]),
    Ban("state, gauge", ["standing"]),
    Ban("passthrough fields, extension fields", ["carried"]),
    Ban("timing", ["spent"]),
    Ban("a noun", ["whoever", "whatever", "someone", "somebody", "anybody"]),
]

_TERM = re.compile(r"\*\*([a-z][a-z -]*)\*\*", re.IGNORECASE)


def _sources() -> list[Path]:
    return sorted(path for path in (repository() / "broker").rglob("*") if path.suffix in {".py", ".sql"})


def _terms() -> list[str]:
    page = (repository() / "docs" / "glossary.md").read_text(encoding="utf-8")
    return [term.lower() for term in _TERM.findall(page)]


def _words(identifier: str) -> list[str]:
    """The words of `AckDeadline`, `ACK_DEADLINE` and `ack_deadline` alike: ["ack", "deadline"]."""
    return [word for word in re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", identifier).lower().split("_") if word]


@cache
def _phrases(length: int) -> set[tuple[str, ...]]:
    """The phrases of so many words in broker/: those of `AckDeadline`, `ack_deadline` and "ack deadline" alike."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in _sources())
    words = re.findall(r"[a-z0-9]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text).lower())
    return set(zip(*(words[at:] for at in range(length)), strict=False))


def _is_used(term: str) -> bool:
    *before, last = re.split(r"[ -]", term)
    return any((*before, form) in _phrases(len(before) + 1) for form in (last, f"{last}s", f"{last}es"))


def _identifiers(text: str, suffix: str) -> set[str]:
    """The names in a file, without comments and texts."""
    if suffix == ".sql":
        return set(re.findall(r"[A-Za-z_]\w*", re.sub(r"--.*|'[^']*'", "", text)))
    fields = ("id", "attr", "arg", "name", "asname", "module")
    named = (getattr(node, field, None) for node in ast.walk(ast.parse(text)) for field in fields)
    return {part for name in named if isinstance(name, str) for part in name.split(".")}


@cache
def _all_identifiers() -> dict[str, set[str]]:
    """The identifiers of each file, with its own name."""
    return {
        path.relative_to(repository()).as_posix(): _identifiers(path.read_text(encoding="utf-8"), path.suffix)
        | {path.stem, path.parent.name}
        for path in _sources()
    }


def _coined(ban: Ban, identifiers: set[str]) -> Iterator[str]:
    banned = {form for word in ban.words for form in (word, f"{word}s", f"{word}es")}
    return (each for each in sorted(identifiers - {*ban.allowed}) if banned.intersection(_words(each)))


def test_a_word_of_the_glossary_is_a_word_of_the_code() -> None:
    assert _terms()
    unused = [term for term in _terms() if not _is_used(term)]
    assert not unused, unused


def test_a_word_has_one_line() -> None:
    assert len(_terms()) == len(set(_terms()))


def test_no_identifier_is_coined_where_the_field_has_a_word() -> None:
    coined = [
        f"{file}: {name}: say {ban.instead}"
        for file, identifiers in _all_identifiers().items()
        for ban in BANNED
        for name in _coined(ban, identifiers)
    ]
    assert not coined, "\n".join(coined)


def test_what_a_ban_allows_is_still_there() -> None:
    everywhere = set().union(*_all_identifiers().values())
    assert [(ban.instead, name) for ban in BANNED for name in ban.allowed if name not in everywhere] == []


def test_coined_words_are_found_in_any_spelling() -> None:
    ban = Ban("locked backlog", ["pile"], allowed=["pile_driver"])
    names = _identifiers(
        "class BacklogPile:\n    MAX_PILES = 1\n    pile_driver = compiled\n# a pile\n'a pile'", ".py"
    )
    assert list(_coined(ban, names)) == ["BacklogPile", "MAX_PILES"]
    assert list(_coined(ban, _identifiers("SELECT piles FROM t -- pile", ".sql"))) == ["piles"]
