"""Changes of ack deadlines: extensions, nacks, and messages that are dead-lettered (A7)."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from broker.model.ack_id import AttemptName
from broker.model.journal import Attribution
from broker.model.retry_policy import RetryPolicy

AttemptStatus = Literal["delivering", "nacked", "exhausted", "released"]


@dataclass(frozen=True, slots=True)
class DeadlineChange:
    """New `next_delivery_at` for some messages of an attempt.

    `status`: "delivering" moves the ack deadline, "nacked" is a nack (a retry policy delays it from there on), and
    "exhausted" gives the messages up to the dead-letter forwarder.  "released" is a nack of what reached nobody:
    the attempt does not count.  `failure` is how the attempt has failed (model/dead_letter.py), if it has.
    `attribution`: it is written in the journal, so.
    """

    attempt: AttemptName
    ordinals: frozenset[int]
    next_delivery_at: datetime
    status: AttemptStatus = "delivering"
    retry_policy: RetryPolicy | None = None
    exactly_once: bool = False
    failure: str | None = None
    attribution: Attribution | None = None
