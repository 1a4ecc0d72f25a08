"""Computes when a message that failed is delivered again (A4)."""

from dataclasses import dataclass
from datetime import timedelta

from broker.model.api_json import ExactDuration


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Bounds of the delay after a nack or an expired ack deadline; each 0 to 600 s, minimum <= maximum."""

    minimum_backoff: ExactDuration = timedelta(seconds=10)
    maximum_backoff: ExactDuration = timedelta(seconds=600)

    def delay(self, failures: int) -> timedelta:
        """The delay after the n-th failure, without jitter: min(max, min * 2^(n-1)) (A4).

        A nack's is reckoned by core/acking/modify_ack_deadline.sql and modify_ordered_deadline.sql, which know n; a
        test compares them.
        """
        doublings = min(failures - 1, 32)  # 2^32 s is past every maximum; larger powers only overflow
        return min(self.maximum_backoff, self.minimum_backoff * (1 << doublings))
