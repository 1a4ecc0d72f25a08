-- Sends a wake-up.  A transaction with NOTIFY has an id, so its commit waits for the disk, and so do the publishes
-- queued behind it.  `synchronous_commit` is off because no part of a wake-up has to survive a crash.
-- parameters: channel text, payload text
SELECT set_config('synchronous_commit', 'off', true), notify_brokers(%(channel)s, %(payload)s)
