"""Who may write the rows that say what is out: few places, each named in docs/claim.md."""

import re
from pathlib import Path

STORE = Path("broker")
WRITES = re.compile(r"\b(?:INSERT INTO|UPDATE|DELETE FROM) delivery_attempts\b")
LOADED = re.compile(r'statements\.(?:hot|load)\("(\w+)"\)')
TABLE = re.compile(r"\bdelivery_attempts\.(?:insert|update|delete)\(|(?:insert|update|delete)\(delivery_attempts\)")

WRITERS = {
    "core/claiming/transaction/passed.py",
    "core/claiming/transaction/write.py",
    "core/backlog/seeking/cursors.py",
    "features/dead_letters/forwarding/forwarding.py",
    "core/acking/delivery_attempts.py",
    "core/retention/finished_attempts.py",
    "core/backlog/pending_rows.py",
    "core/backlog/locked_backlog.py",
    "features/retraction/removal.py",
    "core/acking/acknowledge_citus.py",
    "core/acking/modify_ack_deadline_citus.py",
    "core/retention/delete_finished_attempts_citus.py",
    "core/catalog/topic_logs.py",
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
        assert writer in page or writer.startswith("core/claiming/transaction/"), writer


def test_a_statement_has_one_file() -> None:
    names = [path.name for path in STORE.rglob("*.sql")]
    assert len(names) == len(set(names))
