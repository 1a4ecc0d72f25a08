-- A transaction that notifies has an id, so its commit waits for the disk, and the publishes behind it wait too; but
-- nothing of a wake-up must outlive a crash.
-- parameters: channel text, payload text
SELECT set_config('synchronous_commit', 'off', true), notify_brokers(%(channel)s, %(payload)s)
