"""Texts of errors that code in the wild is known to match on (docs/decisions/0005)."""

from tests.fixtures.broker import Rest, message


async def test_mixed_ordering_keys_are_refused_with_the_service_s_ending(rest: Rest) -> None:
    await rest.create_topic()
    mixed = {"messages": [message("a", orderingKey="a"), message("b", orderingKey="b")]}
    assert await rest.error("POST", f"{rest.topic()}:publish", mixed) == (
        "FAILED_PRECONDITION",
        "In a single publish request, all messages must have no ordering key or they must all have the same "
        "ordering key. [code=539b]",
    )
