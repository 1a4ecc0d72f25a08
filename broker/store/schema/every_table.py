"""The whole schema, whichever modules declare its tables."""

from broker.store.schema import (
    access_tables,
    dead_letter_tables,
    delivery_record_tables,
    event_tables,
    identity_tables,
    import_tables,
    journal_tables,
    operation_tables,
    payload_schema_tables,
    push_tables,
    quota_tables,
    reader_tables,
    retraction_tables,
    schedule_tables,
    staged_tables,
    storage_tables,
    tables,
    tick_tables,
)

metadata = tables.metadata
DECLARED_IN = (
    tables,
    access_tables,
    dead_letter_tables,
    event_tables,
    journal_tables,
    quota_tables,
    reader_tables,
    payload_schema_tables,
    push_tables,
    operation_tables,
    import_tables,
    schedule_tables,
    staged_tables,
    storage_tables,
    tick_tables,
    identity_tables,
    retraction_tables,
    delivery_record_tables,
)
