"""What the catalog knows of shards, and which subscriptions have cursors that are paused.

On one server they are views, and what is written to them is nothing.  Where shards lie on nodes they are tables of
the catalog's own, so that a topic is read without asking all nodes: who writes the one writes the other
(docs/decisions/0053).
"""

from sqlalchemy import BigInteger, Integer, column, table

known_shards = table(
    "known_shards", column("shard_id", BigInteger), column("topic_id", BigInteger), column("level", Integer)
)
held_claims = table("held_claims", column("subscription_id", BigInteger))
