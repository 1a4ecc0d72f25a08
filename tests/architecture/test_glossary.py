"""docs/glossary.md has the words of the code, and the code has no others for the same things."""

import re
from functools import cache

import pytest

from tests.fixtures.broker import repository

# What others say, and the word that we have for it.
BANNED = {
    "lease": "ack deadline",
    "leased": "ack deadline",
    "visibility": "ack deadline",
    "unacked": "open, or not acked",
    "requeue": "nack",
    "requeued": "nack",
    "dlq": "dead letter",
    "bookmark": "cursor",
    "watermark": "head, or floor",
    "extent": "stretch",
    "puller": "consumer",
    "tombstone": "settled",
}
_TERM = re.compile(r"\*\*([a-z][a-z -]*)\*\*", re.IGNORECASE)


def _terms() -> list[str]:
    page = (repository() / "docs" / "glossary.md").read_text(encoding="utf-8")
    return [term.lower() for term in _TERM.findall(page)]


@cache
def _code() -> str:
    """All of broker/ as words: those of `AckDeadline`, `ack_deadline` and "ack deadline" alike."""
    files = [path for path in (repository() / "broker").rglob("*") if path.suffix in {".py", ".sql"}]
    text = "\n".join(path.read_text(encoding="utf-8") for path in files)
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text.replace("_", " ").replace("-", " "))
    return re.sub(r"\s+", " ", apart).lower()


def _is_used(word: str) -> bool:
    return re.search(rf"\b{word.replace('-', ' ')}(?:s|es)?\b", _code()) is not None


@pytest.mark.parametrize("term", _terms())
def test_a_word_of_the_glossary_is_a_word_of_the_code(term: str) -> None:
    assert _is_used(term)


def test_a_word_has_one_line() -> None:
    assert len(_terms()) == len(set(_terms()))


@pytest.mark.parametrize("word", BANNED)
def test_there_is_one_word_for_a_thing(word: str) -> None:
    assert not _is_used(word), BANNED[word]
