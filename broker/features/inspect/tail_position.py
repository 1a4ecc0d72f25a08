"""Positions of a reader in the shards of a topic, encoded as ids of server-sent events."""

from base64 import urlsafe_b64decode
from collections.abc import Mapping

import msgspec

from broker.core.log.log_page import LogPosition
from broker.model.errors import InvalidArgument
from broker.model.page import page_token, parse_page_token

Positions = Mapping[int, LogPosition]  # by shard: the last message that was read or skipped

_KINDS = tuple(LogPosition.__annotations__.values())
MAX_TOKEN = 40_000  # characters: a topic has 256 shards at most


def position_token(positions: Positions) -> str:
    """Returns the id of an event after which a reader has these positions."""
    ordered = (positions[shard_id] for shard_id in sorted(positions))
    return page_token(*(value for each in ordered for value in (each.shard_id, each.publish_time, each.seq)))


def parse_position_token(token: str) -> Positions:
    """Returns the positions in the id of an event.  Raises InvalidArgument."""
    try:
        raw = urlsafe_b64decode(token[:MAX_TOKEN] + "=" * (-len(token[:MAX_TOKEN]) % 4))
        count, rest = divmod(len(msgspec.json.decode(raw, type=list[int])), len(_KINDS))
        values = parse_page_token(token, *_KINDS * count) if count and not rest else ()
    except (ValueError, InvalidArgument):
        values = ()
    if not values:
        raise InvalidArgument(f"Last-Event-ID is no id of an event of this stream (Last-Event-ID={token[:100]}).")
    starts = range(0, len(values), len(_KINDS))
    return {values[at]: LogPosition(*values[at : at + len(_KINDS)]) for at in starts}
