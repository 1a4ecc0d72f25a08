"""When an idle subscription is deleted: the times of its expiration policy.

A subscription is in use when it is pulled, acknowledged, sought, snapshotted or changed, when an ack deadline is
modified, while a pull waits, and when a push succeeds.  Every process writes uses in batches, so `last_active_at`
is slightly behind.

    last_active_at                        ttl - notice                        ttl + lag
         │ used ─────────── idle ────────────── │ watched while a broker runs ──── │ deleted

Only time during which a broker ran and watched counts for the notice period: a broker that was down for a week does
not delete, when it starts, subscriptions that could not be used meanwhile.
"""

from datetime import timedelta

RECORD_INTERVAL = timedelta(minutes=1)  # how often a process records uses, with one statement
RECORD_RESOLUTION = timedelta(minutes=10)  # a use within this time is not recorded again, by any process
RECORD_LAG = timedelta(
    minutes=15
)  # how far `last_active_at` may be behind: the two above, and a failed write or two

WATCH_INTERVAL = timedelta(minutes=10)  # how often idle subscriptions are checked; 1/144 of the shortest ttl
LONGEST_GAP = timedelta(minutes=30)  # after a longer gap no broker can have run (or none reached the database)
NOTICE = timedelta(days=1)  # or half the ttl, if that is less
GRACE = timedelta(hours=1)  # left of the notice after such a gap: clients need time to come back
