"""docs/glossary.md has the words of the code, and the code has no others for the same things."""

import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

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
    "extent": "message range",
    "puller": "consumer",
    "tombstone": "settled",
}
# Words that have meant several things: by how they begin, the rooms in which their one meaning is at home.
HOMES = {
    # messages, by who had them
    "settle": (
        "app/",
        "core/acking/",
        "core/backlog/",
        "core/pulling/",
        "core/pushing/",
        "core/records/",
        "features/dead_letters/",
        "features/inspect/",
        "features/outbox/",
        "features/retraction/",
        "model/",
    ),
    # a position with a filter
    "place": ("core/claiming/",),
    # a point of a log
    "position": (
        "client/",
        "core/backlog/",
        "core/catalog/",
        "core/claiming/",
        "core/log/",
        "core/retention/",
        "db/",
        "features/dead_letters/",
        "features/filters/",
        "features/import_export/",
        "features/inspect/",
        "features/purge/",
        "features/quotas/",
        "features/reset/",
        "model/",
    ),
    # a message in its attempt or batch
    "ordinal": (
        "core/acking/",
        "core/backlog/",
        "core/catalog/",
        "core/claiming/",
        "core/log/",
        "core/pulling/",
        "core/pushing/",
        "core/records/",
        "core/retention/",
        "features/dead_letters/",
        "features/deduplication/",
        "features/delayed/",
        "features/inspect/",
        "features/retraction/",
        "features/transforms/",
        "model/",
    ),
    # messages, one by one
    "scan": (
        "api/",
        "core/backlog/",
        "core/claiming/",
        "core/lag/",
        "core/log/",
        "features/dead_letters/",
        "features/filters/",
        "features/inspect/",
        "model/",
    ),
}
ELSEWHERE = {"placeholder", "position(B"}  # of a text; a function of PostgreSQL's, on bits
# What a look has brought needs no other name than `found`, and nothing else has it.
NAMES_WITH_FOUND = {
    "found",
    "found_at",
    "not_found",
    "topic_not_found",
    "schema_not_found",
    "revision_not_found",
    "subscription_not_found",
    "operation_not_found",
    "file_not_found_error",
}
_TYPED = re.compile(r'"dlq"|broker dlq')  # the name of a command, short as those who type it have it
_METRIC = re.compile(r'"pubsub_[a-z_]+"')  # their words are Google's
_TERM = re.compile(r"\*\*([a-z][a-z -]*)\*\*", re.IGNORECASE)


def _terms() -> list[str]:
    page = (repository() / "docs" / "glossary.md").read_text(encoding="utf-8")
    return [term.lower() for term in _TERM.findall(page)]


@cache
def _code() -> str:
    """All of broker/ as words: those of `AckDeadline`, `ack_deadline` and "ack deadline" alike."""
    files = [path for path in (repository() / "broker").rglob("*") if path.suffix in {".py", ".sql"}]
    text = "\n".join(path.read_text(encoding="utf-8") for path in files)
    text = _TYPED.sub("", _METRIC.sub("", text))
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text.replace("_", " ").replace("-", " "))
    return re.sub(r"\s+", " ", apart).lower()


def _is_used(word: str) -> bool:
    return re.search(rf"\b{word.replace('-', ' ')}(?:s|es)?\b", _code()) is not None


def test_a_word_of_the_glossary_is_a_word_of_the_code() -> None:
    assert _terms()
    unused = [term for term in _terms() if not _is_used(term)]
    assert not unused, unused


def test_a_word_has_one_line() -> None:
    assert len(_terms()) == len(set(_terms()))


def test_there_is_one_word_for_a_thing() -> None:
    used = [f"{word}: say {ours}" for word, ours in BANNED.items() if _is_used(word)]
    assert not used, used


def _broker() -> Path:
    return repository() / "broker"


def _names(path: Path) -> set[str]:
    """The identifiers of a file, in small letters with underscores; comments, texts and docstrings have none."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".sql":
        names = re.findall(r"[A-Za-z_]\w*(?:\(B)?", re.sub(r"--.*", "", text))
    else:
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        names = [token.string for token in tokens if token.type == tokenize.NAME]
    return {re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).strip("_") for name in names}


@cache
def _all_names() -> dict[str, set[str]]:
    files = sorted(path for path in _broker().rglob("*") if path.suffix in {".py", ".sql"})
    return {path.relative_to(_broker()).as_posix(): _names(path) for path in files}


def _having(beginning: str) -> Iterator[tuple[str, str]]:
    for file, names in _all_names().items():
        for name in sorted(names - ELSEWHERE):
            if (
                any(word.startswith(beginning) for word in name.lower().split("_"))
                and name.lower() not in ELSEWHERE
            ):
                yield file, name


def test_a_word_that_has_one_meaning_is_at_home_in_its_rooms_alone() -> None:
    named = [(word, file, name) for word in HOMES for file, name in _having(word)]
    strangers = [found for found in named if not found[1].startswith(HOMES[found[0]])]
    assert not strangers, strangers
    used = {(word, home) for word, file, _ in named for home in HOMES[word] if file.startswith(home)}
    assert {(word, home) for word in HOMES for home in HOMES[word]} - used == set(), "rooms that have it no more"


def test_what_was_found_has_no_other_name() -> None:
    assert {name.lower() for _, name in _having("found")} == NAMES_WITH_FOUND
