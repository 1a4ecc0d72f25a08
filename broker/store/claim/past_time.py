"""What is past its time (domain/expiry.py): claims pass it as they pass what a filter leaves out, and count it."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

from broker.domain.dead_letter import EXPIRED
from broker.domain.delivery import MAX_MESSAGES_PER_ATTEMPT
from broker.domain.expiry import OF_ITS_OWN
from broker.domain.journal import Event, Row, rows_of
from broker.domain.stretch import Source, Stretch, close_runs, count_of, multirange
from broker.store.claim.bodies import Bodies
from broker.store.claim.due import pass_due
from broker.store.claim.fresh import look_at
from broker.store.claim.request import MAX_BYTES, ClaimRequest
from broker.store.claim.round_trip import RoundTrip
from broker.store.claim.work import Portion, Work
from broker.store.log.attempt_ids import AttemptIds


def look_beyond(trip: RoundTrip, request: ClaimRequest, works: Sequence[Work], bodies: Bodies) -> None:
    """Further on, where all that was found is past its time: who takes one message waits for no thousand claims."""
    pass_due(trip, request, works)
    places = [work.place for work in works if work.place.is_past]
    for place in places:
        place.passes = True
    look_at(trip, request, places, bodies)


def passed(portion: Portion, past: Sequence[Stretch], end: int) -> list[Stretch]:
    """Of fresh messages those that a cursor leaves behind for good which comes to `end`.

    Those behind what goes out of their key wait for it, as others of the key do.
    """
    going_out = (message for share in portion.shares if past for message in share.fresh)
    last = {message.ordering_key: message.first_seq for message in going_out if message.ordering_key is not None}
    return [each for each in past if each.first_seq < min(end, last.get(each.ordering_key or "", end))]


def past_of(work: Work) -> Iterator[tuple[int, Sequence[Stretch]]]:
    """What is done with for a claimant, by how often it was handed out."""
    if work.portion.past:
        yield 0, work.portion.past
    yield from ((row.attempt_number, row.past) for row in work.due if row.past)
    yield from ((run.numbers[0] if run.left else 0, run.passed) for run in work.runs if run.passed)


def count_past(work: Work) -> int:
    return sum(count_of(messages) for _, messages in past_of(work))


def rows_of_past(works: Iterable[Work]) -> Iterator[Row]:
    """For the journal, whatever was chosen; the forwarder tells of what is left to it."""
    for work in works:
        for number, messages in () if work.claimant.gives_up_expired else past_of(work):
            ranges = [(each.first_seq, each.end) for each in sorted(messages)]
            yield from rows_of(None, work.subscription_id, Event.EXPIRED, number, ranges, answer=OF_ITS_OWN)


def given_up(
    request: ClaimRequest, works: Iterable[Work], attempt_ids: AttemptIds, at: datetime
) -> dict[str, Any] | None:
    """What is left to the dead-letter forwarder, as insert_given_up.sql takes it; None: nothing is."""
    rows = [
        (work.subscription_id, number, run)
        for work in works
        if work.claimant.gives_up_expired
        for number, messages in past_of(work)
        for run in _rows_of(sorted(messages))
    ]
    if not rows:
        return None
    return {
        "shard_id": request.shard_id,
        "now": at,
        "failure": EXPIRED,
        "subscription_ids": [subscription_id for subscription_id, _, _ in rows],
        "attempt_ids": list(attempt_ids.take(len(rows), now=request.now)),
        "attempt_numbers": [number for _, number, _ in rows],
        "seqs": [multirange(run) for _, _, run in rows],
        "counts": [count_of(run) for _, _, run in rows],
        "first_publish_times": [run[0].publish_time for _, _, run in rows],
        "last_publish_times": [run[-1].publish_time for _, _, run in rows],
    }


def _rows_of(messages: Sequence[Stretch]) -> Iterator[Sequence[Stretch]]:
    """As many as a row holds, and not far apart."""
    for run in close_runs(messages):
        source = Source(run)
        while some := source.take(MAX_MESSAGES_PER_ATTEMPT, MAX_BYTES, at_least=1):
            yield some
