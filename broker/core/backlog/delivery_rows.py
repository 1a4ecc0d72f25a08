"""Rows of `delivery_attempts`, as statements read them, for core/backlog/delivery_state.py."""

from typing import Any

from broker.core.backlog.delivery_state import DeliveryRow
from broker.model.due_attempt import attempt_numbers
from broker.model.sequences import bounds_of, from_multirange


def delivery_row(row: Any) -> DeliveryRow:
    """Converts a named row with the columns of lock_holding_attempts.sql.

    A row without a key needs fewer of them.
    """
    return DeliveryRow(
        status=row.status,
        attempt_number=row.attempt_number,
        due_at=row.next_delivery_at,
        seqs=from_multirange(row.seqs),
        open=row.open,
        ordering_key=row.ordering_key,
        out_count=row.out_count,
        attempt_numbers=attempt_numbers(row.attempt_numbers or ""),
        waiting=bounds_of(row.waiting or "{}"),
        redriven=row.redriven,
    )
