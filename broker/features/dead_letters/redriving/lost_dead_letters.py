"""Restores messages that the log no longer has from their dead letters, among its stragglers (G2)."""

from collections.abc import Sequence

from broker.db.driver import statements
from broker.db.driver.hot_connection import Bound
from broker.features.dead_letters.chosen import ADDED
from broker.features.dead_letters.dead_letter_groups import Group

_COPY_DEAD_LETTERS = statements.hot("copy_dead_letters")


def put_back(shard_id: int, groups: Sequence[Group]) -> Bound:
    """Returns the statement that restores messages of a shard, for groups of which a dead letter is in the log."""
    dead_letters = [
        next(dead_letter for dead_letter in group.dead_letters if dead_letter.is_there) for group in groups
    ]
    return _COPY_DEAD_LETTERS, {
        "shard_id": shard_id,
        "publish_times": [dead_letter.source_publish_time for dead_letter in dead_letters],
        "seqs": [dead_letter.source_seq for dead_letter in dead_letters],
        "dead_letter_shards": [dead_letter.shard_id for dead_letter in dead_letters],
        "dead_letter_publish_times": [dead_letter.publish_time for dead_letter in dead_letters],
        "dead_letter_seqs": [dead_letter.seq for dead_letter in dead_letters],
        "added": list(ADDED),
    }
