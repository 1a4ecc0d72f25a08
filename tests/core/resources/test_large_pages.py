"""Pages of resources that are large are short, so that no answer has more than some 10 MB; the token leads on."""

import json
from typing import Any

import pytest

from broker.core.catalog.page_bytes import MAX_PAGE_BYTES
from tests.fixtures.broker import Rest

SCHEMA_BYTES = 300_000  # 34 are more than a page has
SCHEDULE_BYTES = 250_000


async def _schema(rest: Rest, number: int) -> None:
    doc = "x" * (SCHEMA_BYTES - 60)
    definition = json.dumps({"type": "record", "name": "R", "doc": doc, "fields": []})
    body = {"type": "AVRO", "definition": definition}
    await rest.ok("POST", f"{rest.project}/schemas", body, params={"schemaId": f"s{number:03}"})


async def _schedule(rest: Rest, number: int) -> None:
    body = {"topic": rest.topic(), "schedule": "0 0 1 1 *", "message": {"data": "eHh4" * (SCHEDULE_BYTES // 3)}}
    await rest.ok("PUT", f"{rest.project}/schedules/s{number:03}", body)


async def _topic(rest: Rest, number: int) -> None:
    codes = [f"function f{n}(m, d) {{ return m; }}//{'x' * 20_000}" for n in range(5)]
    transforms = [{"javascriptUdf": {"functionName": f"f{n}", "code": code}} for n, code in enumerate(codes)]
    await rest.create_topic(f"s{number:03}", messageTransforms=transforms)


@pytest.mark.parametrize(
    ("collection", "make", "count"),
    [("schemas", _schema, 36), ("schedules", _schedule, 33), ("topics", _topic, 102)],
)
async def test_a_page_of_large_resources_is_short_and_all_pages_together_have_all(
    rest: Rest, collection: str, make: Any, count: int
) -> None:
    await rest.create_topic()
    for number in range(count):
        await make(rest, number)
    names: list[str] = []
    token, pages = "", 0
    while token or not pages:
        params = {"pageSize": "1000", "pageToken": token, **({"view": "FULL"} if collection == "schemas" else {})}
        answer = await rest.call("GET", f"{rest.project}/{collection}", params=params)
        assert len(answer.content) < MAX_PAGE_BYTES * 1.5
        page = answer.json()
        names += [each["name"] for each in page[collection]]
        token, pages = page.get("nextPageToken", ""), pages + 1
    made = [f"{rest.project}/{collection}/s{number:03}" for number in range(count)]
    assert [name for name in names if name in made] == made
    assert len(names) == len(set(names))
    assert pages == 2
