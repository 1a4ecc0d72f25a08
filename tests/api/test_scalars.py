"""Numbers, durations and times are of the digits 0 to 9 only."""

import pytest

from tests.fixtures.broker import Rest, text

ARABIC = str.maketrans("0123456789", "".join(chr(0x660 + digit) for digit in range(10)))


@pytest.mark.parametrize(
    "duration", ["1200s".translate(ARABIC), "1_200s", "+1200s", " 1200s", "1200", "1200.s", "1200s\n"]
)
async def test_a_duration_of_other_characters_is_refused_by_the_field_s_name(rest: Rest, duration: str) -> None:
    code, message = await rest.error("PUT", rest.topic(), {"messageRetentionDuration": duration})
    assert (code, "messageRetentionDuration" in message) == ("INVALID_ARGUMENT", True), message


@pytest.mark.parametrize("ttl", ["315576000000s", "86400.000001s", "86400.500s", "86400.000000001s"])
async def test_a_duration_up_to_ten_thousand_years_is_kept_exactly(rest: Rest, ttl: str) -> None:
    """Protobuf's longest; it came back as 2,737 years."""
    await rest.create_topic()
    fields = {"expirationPolicy": {"ttl": ttl}, "messageRetentionDuration": "600s"}
    assert (await rest.create_subscription(**fields))["expirationPolicy"] == {"ttl": ttl}
    assert (await rest.ok("GET", rest.subscription()))["expirationPolicy"] == {"ttl": ttl}
    assert (await rest.ok("GET", f"{rest.project}/subscriptions"))["subscriptions"][0][
        "name"
    ] == rest.subscription()


@pytest.mark.parametrize("ttl", ["315576000001s", "-315576000000s", "-1s", "86399.999999s", "1e9s"])
async def test_a_longer_or_a_shorter_one_is_refused_as_it_was_given(rest: Rest, ttl: str) -> None:
    await rest.create_topic()
    body = {"topic": rest.topic(), "expirationPolicy": {"ttl": ttl}}
    code, message = await rest.error("PUT", rest.subscription(), body)
    assert (code, ttl in message) == ("INVALID_ARGUMENT", True), message


async def test_nanoseconds_count_against_a_limit_and_end_with_their_duration(rest: Rest) -> None:
    code, message = await rest.error("PUT", rest.topic(), {"messageRetentionDuration": "2678400.000000001s"})
    assert (code, "2678400.000000001s" in message) == ("INVALID_ARGUMENT", True), message
    await rest.create_topic(messageRetentionDuration="600.000000001s")
    changes = [("601s", "601s"), ("600.000001002s", "600.000001002s"), (None, None)]
    for given, expected in changes:
        body = {"topic": {"messageRetentionDuration": given}, "updateMask": "messageRetentionDuration"}
        await rest.ok("PATCH", rest.topic(), body)
        assert (await rest.ok("GET", rest.topic())).get("messageRetentionDuration") == expected
    await rest.ok(
        "PATCH",
        rest.topic(),
        {"topic": {"messageRetentionDuration": "700.000000003s"}} | {"updateMask": "messageRetentionDuration"},
    )
    created = await rest.create_subscription(retryPolicy={"minimumBackoff": "1.000000001s"})
    assert created["topicMessageRetentionDuration"] == "700.000000003s"
    assert created["retryPolicy"] == {"minimumBackoff": "1.000000001s", "maximumBackoff": "600s"}


@pytest.mark.parametrize("time", ["9999-12-31T23:59:59.999999Z", "0001-01-01T00:00:00Z", "1969-12-31T23:59:59Z"])
async def test_a_seek_to_the_ends_of_time_does_as_one_to_any_other(rest: Rest, time: str) -> None:
    await rest.create_topic()
    await rest.create_subscription(retainAckedMessages=True)
    await rest.publish("before")
    answer = await rest.ok("POST", f"{rest.subscription()}:seek", {"time": time})
    assert (answer["replayedMessages"], "notRetained" in answer) == (0, not time.startswith("9999"))
    await rest.publish("after")
    wanted = ["after"] if time.startswith("9999") else ["before", "after"]
    assert sorted(map(text, await rest.drain())) == sorted(wanted)
    assert await rest.ok("GET", f"{rest.subscription()}/snapshot")
    answer = await rest.ok("POST", f"{rest.subscription()}:seek", {"time": "2000-01-01T00:00:00Z"})
    assert answer["replayedMessages"] == 2
    assert sorted(map(text, await rest.drain())) == ["after", "before"]


@pytest.mark.parametrize("number", ["2147483648", "-2147483649", "99999999999999999999", "1e10", "1.5", "0x10"])
async def test_a_number_beyond_32_bits_is_refused(rest: Rest, number: str) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    for sent in (number, f'"{number}"'):
        content = b'{"maxMessages": %s, "returnImmediately": true}' % sent.encode()
        code, _ = await rest.error("POST", f"{rest.subscription()}:pull", content=content)
        assert code == "INVALID_ARGUMENT"


@pytest.mark.parametrize(
    "time", ["2026-11-21T07:00:00Z".translate(ARABIC), "2026-11-21T07:00:00.\u0661Z", "2_026-11-21T07:00:00Z"]
)
async def test_a_time_of_other_characters_is_refused(rest: Rest, time: str) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    assert (await rest.error("POST", f"{rest.subscription()}:seek", {"time": time}))[0] == "INVALID_ARGUMENT"
