"""The tables of locks and of the key of notifications.  They are a part of the metadata of tables.py."""

from sqlalchemy import Column, LargeBinary, Table, Text

from broker.store.driver.locks import LOCKS
from broker.store.schema.tables import metadata

# Each is locked as a whole, and has neither columns nor rows (store/driver/locks.py).
lock_tables = tuple(Table(name, metadata) for name in LOCKS)

# A transaction inserts a name and deletes it again, and has it until it ends: nobody sees a row.
locked_names = Table("locked_names", metadata, Column("name", Text, primary_key=True))

# One row: what seals notifications (store/driver/notification_seal.py).
notification_keys = Table("notification_keys", metadata, Column("key", LargeBinary, primary_key=True))
