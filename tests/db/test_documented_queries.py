"""The queries that docs/ gives to operators are understood by the schema as it is."""

import re

import psycopg

from tests.fixtures.broker import repository

_QUERY = re.compile(r'^ *\$db -c "(SELECT .*?)"$', re.MULTILINE | re.DOTALL)


def test_queries_of_the_runbooks_run(database_url: str) -> None:
    queries = _QUERY.findall((repository() / "docs" / "runbooks.md").read_text())
    assert len(queries) >= 5
    with psycopg.connect(database_url, options="-c search_path=broker,public") as connection:
        for query in queries:
            if "pg_terminate_backend" not in query:
                connection.execute(query)
