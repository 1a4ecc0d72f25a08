"""Messages that the log has no more are put among its stragglers, as they were, from their dead letters (G2)."""

from collections.abc import Sequence

from broker.db.driver import statements
from broker.db.driver.hot_connection import Bound
from broker.features.dead_letters.chosen import ADDED
from broker.features.dead_letters.dead_letter_groups import Group

_COPY_LETTERS = statements.hot("copy_letters")


def put_back(shard_id: int, groups: Sequence[Group]) -> Bound:
    """Returns the statement that does it in a shard, for groups of which a dead letter is there."""
    letters = [next(letter for letter in group.letters if letter.is_there) for group in groups]
    return _COPY_LETTERS, {
        "shard_id": shard_id,
        "publish_times": [letter.source_publish_time for letter in letters],
        "seqs": [letter.source_seq for letter in letters],
        "letter_shards": [letter.shard_id for letter in letters],
        "letter_publish_times": [letter.publish_time for letter in letters],
        "letter_seqs": [letter.seq for letter in letters],
        "added": list(ADDED),
    }
