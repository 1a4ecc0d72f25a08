"""Messages that the log has no more are put among its stragglers, as they were, from their dead letters (G2)."""

from collections.abc import Sequence

from broker.db.driver import statements
from broker.db.driver.hot_connection import Bound
from broker.features.dead_letters.chosen import ADDED
from broker.features.dead_letters.dead_letter_groups import Group
from broker.features.dead_letters.letters_on_nodes import put_back_read

_COPY_LETTERS = statements.hot("copy_letters")


def put_back(shard_id: int, groups: Sequence[Group]) -> Bound:
    """What does it in a shard, for groups of which a letter is there; all of them have been read, or none has.

    They are read where shards lie on nodes: no statement copies from one node to another.
    """
    letters = [next(letter for letter in group.letters if letter.is_there) for group in groups]
    where = {
        "shard_id": shard_id,
        "publish_times": [letter.source_publish_time for letter in letters],
        "seqs": [letter.source_seq for letter in letters],
    }
    messages = [group.sent for group in groups if group.sent is not None]
    if messages:
        return put_back_read(where, messages)
    return _COPY_LETTERS, {
        **where,
        "letter_shards": [letter.shard_id for letter in letters],
        "letter_publish_times": [letter.publish_time for letter in letters],
        "letter_seqs": [letter.seq for letter in letters],
        "added": list(ADDED),
    }
