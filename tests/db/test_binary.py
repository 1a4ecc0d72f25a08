"""Arrays of many values are packed at once; PostgreSQL reads the same from them as from few."""

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from broker.db.driver.binary import ENCODERS, OIDS

START = datetime(2026, 1, 1, tzinfo=UTC)
TIMES = [START + timedelta(microseconds=n * 999_999_937) for n in range(40)]
ARRAYS: list[tuple[str, list[Any]]] = [
    ("int8[]", []),
    ("int8[]", [7]),
    ("int8[]", [2**63 - 1, -(2**63), 0] * 9),
    ("int8[]", [5] * 40),
    ("int8[]", [1, None, *range(40)]),
    ("timestamptz[]", TIMES[:3]),
    ("timestamptz[]", TIMES),
    ("timestamptz[]", [TIMES[0], *TIMES[:20], TIMES[0]]),
    ("timestamptz[]", [START, *TIMES[:20], None]),
]


@pytest.mark.parametrize(("type_", "values"), ARRAYS)
def test_postgresql_reads_an_array_as_it_was_meant(server_url: str, type_: str, values: list[Any]) -> None:
    element = type_.removesuffix("[]")
    with psycopg.connect(server_url) as connection:
        sent = connection.pgconn.exec_params(
            b"SELECT e::text FROM unnest($1) WITH ORDINALITY AS u (e, n) ORDER BY n",
            [ENCODERS[type_](values)],
            [OIDS[type_]],
            [1],
        )
        read = [sent.get_value(row, 0) for row in range(sent.ntuples)]
        meant = connection.execute(
            f"SELECT e::{element}::text FROM unnest(%s::text[]) AS e", [list(map(_text, values))]
        )
        assert [None if text is None else text.decode() for text in read] == [text for (text,) in meant]


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
