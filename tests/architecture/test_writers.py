"""Who may write the rows that say what is out: few places, each named in docs/claim.md."""

import re
from pathlib import Path

STORE = Path("broker/store")
WRITES = re.compile(r"\b(?:INSERT INTO|UPDATE|DELETE FROM) delivery_attempts\b")
LOADED = re.compile(r'statements\.(?:hot|load)\("(\w+)"\)')
TABLE = re.compile(r"\bdelivery_attempts\.(?:insert|update|delete)\(|(?:insert|update|delete)\(delivery_attempts\)")

WRITERS = {
    "claim/passed.py",
    "claim/write.py",
    "log/cursors.py",
    "log/dead_letters.py",
    "log/delivery_attempts.py",
    "log/finished_attempts.py",
    "log/pending_rows.py",
    "log/locked_backlog.py",
    "log/retraction.py",
    "log/split_parts.py",
    "resources/topic_logs.py",
}


def writing_statements() -> set[str]:
    return {path.stem for path in STORE.rglob("*.sql") if WRITES.search(path.read_text())}


def writers() -> set[str]:
    statements = writing_statements()
    return {
        str(path.relative_to(STORE))
        for path in STORE.rglob("*.py")
        if statements.intersection(LOADED.findall(text := path.read_text())) or TABLE.search(text)
    }


def test_only_those_write_delivery_attempts_that_the_page_names() -> None:
    assert writers() == WRITERS


def test_every_statement_that_writes_them_is_loaded_by_one_of_them() -> None:
    loaded = {name for writer in WRITERS for name in LOADED.findall((STORE / writer).read_text())}
    assert writing_statements() <= loaded


def test_the_page_names_each() -> None:
    page = Path("docs/claim.md").read_text()
    for writer in WRITERS:
        assert f"store/{writer}" in page or writer.startswith("claim/"), writer


def test_a_statement_has_one_file() -> None:
    names = [path.name for path in STORE.rglob("*.sql")]
    assert len(names) == len(set(names))
