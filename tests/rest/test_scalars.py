"""Numbers, durations and times are of the digits 0 to 9 only."""

import pytest

from tests.fixtures.broker import Rest

ARABIC = str.maketrans("0123456789", "".join(chr(0x660 + digit) for digit in range(10)))


@pytest.mark.parametrize(
    "duration", ["1200s".translate(ARABIC), "1_200s", "+1200s", " 1200s", "1200", "1200.s", "1200s\n"]
)
async def test_a_duration_of_other_characters_is_refused_by_the_field_s_name(rest: Rest, duration: str) -> None:
    code, message = await rest.error("PUT", rest.topic(), {"messageRetentionDuration": duration})
    assert (code, "messageRetentionDuration" in message) == ("INVALID_ARGUMENT", True), message


@pytest.mark.parametrize(
    "time", ["2026-11-21T07:00:00Z".translate(ARABIC), "2026-11-21T07:00:00.\u0661Z", "2_026-11-21T07:00:00Z"]
)
async def test_a_time_of_other_characters_is_refused(rest: Rest, time: str) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    assert (await rest.error("POST", f"{rest.subscription()}:seek", {"time": time}))[0] == "INVALID_ARGUMENT"
