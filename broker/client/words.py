"""Formats values for people, and parses what people write."""

import base64
import binascii
import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from broker.client import terminal
from broker.client.stop import Misuse
from broker.model.durations import format_units

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])")


def outcomes_text(answer: Mapping[str, Any]) -> str:
    """The number of messages with each outcome: "3 discarded, 1 outstanding"."""
    return ", ".join(f"{count} {outcome}" for outcome, count in answer["counts"].items())


def duration_text(given: str, option: str) -> str:
    """The API's "90s" for "90s", "1m30s" or "90".  Raises Misuse."""
    return f"{seconds_of(given, option):.9f}".rstrip("0").rstrip(".") + "s"


def seconds_of(given: str, option: str) -> float:
    """Raises Misuse."""
    text = given if not given.replace(".", "", 1).isdigit() else f"{given}s"
    if not text or _PART.sub("", text):
        raise Misuse(f"{option} must be a duration such as 30s, 10m, 12h or 7d, not {given!r}")
    return sum(float(n) * (0.001 if unit == "ms" else _UNITS[unit]) for n, unit in _PART.findall(text))


def whole_seconds(given: str, option: str) -> int:
    """The API's 30 for "30s", "0.5m" or "30".  Raises Misuse."""
    seconds = seconds_of(given, option)
    if seconds != int(seconds):
        raise Misuse(f"{option} must be a whole number of seconds, such as 30s, not {given!r}")
    return int(seconds)


def time_text(given: str, option: str, now: datetime) -> str:
    """RFC 3339 for that, for "2h" (so long ago) and for "now".  Raises Misuse."""
    if given == "now":
        return rfc3339(now)
    try:
        moment = datetime.fromisoformat(given)
    except ValueError:
        try:
            return rfc3339(now - timedelta(seconds=seconds_of(given.removesuffix(" ago"), option)))
        except Misuse:
            raise Misuse(
                f"{option} must be a time such as 2026-11-23T10:00:00Z, or how long ago (30m), not {given!r}"
            ) from None
    return rfc3339(_with_zone(moment, option))


def future_text(given: str, option: str) -> str:
    """RFC 3339 for a time that may be to come.  Raises Misuse."""
    try:
        moment = datetime.fromisoformat(given)
    except ValueError:
        raise Misuse(f"{option} must be a time such as 2026-12-01T08:00:00Z, not {given!r}") from None
    return rfc3339(_with_zone(moment, option))


def _with_zone(moment: datetime, option: str) -> datetime:
    """A time without a zone is local time of this machine, which is said on standard error."""
    if moment.tzinfo:
        return moment
    local = moment.astimezone()
    said = f"{option} {moment.isoformat()} has no time zone; taken as {local.isoformat()}"
    terminal.write_line(f"broker: {said}", error=True)
    return local


def rfc3339(moment: datetime) -> str:
    """Formats a time as the API does: in UTC, to the millisecond."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def parse_time(text: str) -> datetime:
    """A time of the API, which may have nanoseconds."""
    whole, _, fraction = text.removesuffix("Z").partition(".")
    return datetime.fromisoformat(f"{whole}.{fraction[:6]:0<6}+00:00")


def short_time(text: str | None) -> str:
    """A time of the API in UTC, to the second: "2026-11-23 10:00:00Z"."""
    return text.partition(".")[0].removesuffix("Z").replace("T", " ") + "Z" if text else ""


def age(seconds: float | None) -> str:
    """Formats an age in its two largest units: "3d4h", "12s"."""
    if seconds is None:
        return ""
    return format_units(timedelta(seconds=seconds), most=2)


def age_of(duration: str | None) -> str:
    """Formats a duration of the API."""
    return age(float(duration.removesuffix("s"))) if duration else ""


def size(count: float) -> str:
    """Formats a number of bytes."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def counted(count: int, noun: str) -> str:
    """Formats a number of things: "1 topic", "2 topics"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def in_words(name: str) -> str:
    """Formats a name of the API as words: "replay missing" for "replayMissing"."""
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name)


def loss_text(what: str, count: int) -> str:
    """Formats a loss that a preview names: "12 skipped messages", "1.2 kB replayed"."""
    words = in_words(what)
    if words.endswith("ytes"):
        kind = words.removesuffix("bytes").strip()
        return f"{size(count)}{f' {kind}' if kind else ''}"
    return counted(count, words.removesuffix("s"))


def leaf(name: str | None) -> str:
    """The id of a resource's name."""
    return (name or "").rpartition("/")[2]


def body_text(message: Mapping[str, Any], *, is_cut: bool = False) -> str:
    """The body of a message as people read it; what is no text is said to be so, in base64.

    `is_cut`: it may end within a character, which is left out.
    """
    try:
        data = base64.b64decode(message.get("data", ""))
        return data.decode()
    except UnicodeDecodeError as error:
        if is_cut and error.reason == "unexpected end of data":
            return data[: error.start].decode()
        return f"base64:{message['data']}"
    except binascii.Error:
        return str(message.get("data", ""))


def as_typed(text: str) -> bytes:
    """The bytes of the command line, whether they are text or not."""
    return text.encode(errors="surrogateescape")


def pairs(given: Sequence[str], option: str) -> dict[str, str]:
    """Parses options KEY=VALUE. Raises Misuse."""
    found = {}
    for one in given:
        name, sign, value = one.partition("=")
        if not sign or not name:
            raise Misuse(f"{option} must be KEY=VALUE, not {one!r}")
        found[name] = value
    return found


def pairs_text(values: Mapping[str, Any] | None) -> str:
    return " ".join(f"{name}={value}" for name, value in sorted((values or {}).items()))


def value_text(value: Any) -> str:
    """Formats the value of a field of the API."""
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case list() if all(isinstance(one, str) for one in value):
            return ", ".join(value)
        case list() | dict():
            return json.dumps(value, ensure_ascii=False)
    return str(value)
