"""What is said of fields of a body (A3)."""

import pytest

from broker.core.filtering.evaluate import matches
from broker.core.filtering.parser import parse_filter

ORDER = b"""{"order": {"total": 100.5, "paid": true, "note": null, "id": "A-17", "tags": ["new", "fragile"],
"big": 9007199254740993, "lines": [{"sku": "x1", "count": 2}, {"sku": "y2", "count": 40, "tags": [["deep"]]}],
"none": []}}"""

TRUE = [
    "body:order", "body:order.note", "body:order.none", "body.order.total > 100", "body.order.total >= 100.50",
    "body.order.total = 1.005e2", "body.order.paid = true", "body.order.note = null", 'body.order.id: "A-"',
    'hasPrefix(body.order.id, "")', 'body.order.tags = "fragile"', 'body.order.tags: "fr"',
    'body.order.lines.sku = "y2"', "body.order.lines.count > 10", "body.order.lines.count < 10",
    "body.order.big = 9007199254740993", "body:order.lines.tags", 'body."order"."id" != "A-18"',
    "NOT body:order.total.x", "body:order AND -body:customer", "body.order.absent != 1", "NOT body.order.id > 1",
]  # fmt: skip
FALSE = [
    "body:customer", "body:order.total.x", "body.order.total > 100.5", 'body.order.total = "100.5"',
    "body.order.paid = 1", "body.order.paid != true", 'body.order.note = ""', "body.order.absent = null",
    'body.order.none = ""', "body:order.none.x", "body.order.id > 1", 'body.order.ID = "A-17"',
    "body.order.big = 9007199254740992", 'body.order.lines.tags = "deep"', 'body.order = "A-17"',
    'body.order.tags != "new"',
]  # fmt: skip


@pytest.mark.parametrize("text", TRUE)
def test_it_is_so(text: str) -> None:
    assert matches(parse_filter(text), {}, ORDER)


@pytest.mark.parametrize("text", FALSE)
def test_it_is_not_so(text: str) -> None:
    assert not matches(parse_filter(text), {}, ORDER)


@pytest.mark.parametrize("body", [b"", b"order", b"\xff", b"5", b"null", ORDER[:-1]])
def test_nothing_is_so_of_a_body_without_fields_and_its_contrary_always_is(body: bytes) -> None:
    for text in (*TRUE, *FALSE):
        plain = text.startswith(("body:", "hasPrefix")) and " " not in text
        if plain:
            assert not matches(parse_filter(text), {}, body)
            assert matches(parse_filter(f"NOT {text}"), {}, body)
    assert matches(parse_filter("body.a != 1"), {}, body)
    assert not matches(parse_filter("body:a AND body.a != 1"), {}, body)
