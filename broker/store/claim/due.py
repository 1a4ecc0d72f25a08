"""What is due again: rows locked, and which of their messages the log still has."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from operator import itemgetter
from typing import Any

from broker.domain.delivery import MESSAGE_OVERHEAD, Redelivery
from broker.domain.due_share import RETRY_SPACING, due_order, is_just_retried
from broker.domain.ordered_run import OrderedRun, Phase
from broker.domain.sequences import from_multirange, to_multirange
from broker.domain.stretch import Stretch
from broker.store.claim.request import ClaimRequest
from broker.store.claim.round_trip import RoundTrip
from broker.store.claim.work import Work
from broker.store.driver import statements
from broker.store.log.due_attempt import DueAttempt, attempt_numbers, due_attempt

_GLIMPSE_DUE = statements.hot("glimpse_due")
_LOCK_DUE_ATTEMPTS = statements.hot("lock_due_attempts")
_FIND_DUE_MESSAGES = statements.hot("find_due_messages")
_FIND_MESSAGES_OF_KEYS = statements.hot("find_messages_of_keys")
_FIND_STRAGGLERS_OF_KEYS = statements.hot("find_stragglers_of_keys")

MAX_DUE_ROWS = 200  # rows, of up to 1,000 messages each, that a claim looks at for one subscription
MAX_SEEN_ROWS = 20_000  # among which a claim for several chooses them, without a lock: up to MAX_DUE_ROWS for each
# And for all together, though at least one for each.  An ordered subscription may have so many alone, twice as many
# as it may hand out: most are of one message, and those of keys of which nothing is out only wait to be let go.
MAX_DUE_ROWS_OF_ALL = 4_000
MAX_DUE_MESSAGES = 10_000  # that a claim looks up, for all together
MAX_RUN = 1_000  # messages of a key that are passed at once, if they are past their time


_GLIMPSED = timedelta(minutes=2)  # of a subscription that is pulled from the floor is a minute behind


class Glimpse:
    """Whether anything is due for a subscription, seen without locks while its cursor is being locked."""

    def __init__(self, request: ClaimRequest, work: Work) -> None:
        self._request, self._work = request, work
        self._since = request.now - _GLIMPSED
        self._found: list[Any] = []

    def add(self, trip: RoundTrip) -> None:
        where = {"shard_id": self._request.shard_id, "subscription_id": self._work.subscription_id}
        trip.add((_GLIMPSE_DUE, {**where, "since": self._since, "now": self._request.now}), take=self._found.extend)

    @property
    def rules_out(self) -> bool:
        """Nothing is due, as the cursor says by now that is locked."""
        return not self._found and self._work.cursor.due_floor >= self._since


def lock_due(trip: RoundTrip, request: ClaimRequest, works: Sequence[Work]) -> None:
    """Lock the rows of these whose time has come."""
    if not works:
        return
    room = max(MAX_DUE_ROWS_OF_ALL // len(works), 1)
    for work in works:
        most = work.claimant.max_messages
        rows = max(2 * most, MAX_DUE_ROWS) if work.claimant.ordered else min(most, MAX_DUE_ROWS)
        work.max_due_rows = min(rows, room)
    seen = min(MAX_SEEN_ROWS // len(works), MAX_DUE_ROWS)
    wanted = {
        **request.where([work.subscription_id for work in works]),
        "max_rows": [work.max_due_rows for work in works],
        "max_seen": [max(work.max_due_rows, seen) for work in works],
        "now": request.now,
        "retried_since": request.now - RETRY_SPACING,
    }
    trip.add((_LOCK_DUE_ATTEMPTS, wanted), take=lambda rows: _take_due(request, works, rows))


def _take_due(request: ClaimRequest, works: Iterable[Work], rows: Iterable[Any]) -> None:
    """Give each work its rows, and let their time begin."""
    by_subscription: dict[int, list[Any]] = {}
    for row in rows:
        by_subscription.setdefault(row.subscription_id, []).append(row)
    for work in works:
        of_work = by_subscription.get(work.subscription_id, ())
        times = [row.found_at for row in of_work if row.found_at is not None]
        # Noted before a retry delay begins: those that were not read may be due before that.  What was just retried
        # and not read may be due earlier still, but not before the floor, which stays a minute behind.
        if len(times) == work.max_due_rows:
            work.beyond = max(times)
        held = [row for row in of_work if row.found_at is None]
        work.changed_meanwhile = len(held) < len(times)
        work.due = [_due_row(request, row) for row in held if row.ordering_key is None]
        work.runs = [_ordered_run(request, row) for row in held if row.ordering_key is not None]
        _begin(request, work)


def _begin(request: ClaimRequest, work: Work) -> None:
    rows: list[DueAttempt | OrderedRun] = [*work.due, *work.runs]
    for row in rows:
        row.begin(
            now=request.now,
            retry_policy=work.claimant.retry_policy,
            jitter=request.jitter,
            max_attempts=work.claimant.max_attempts,
        )


def _due_row(request: ClaimRequest, row: Any) -> DueAttempt:
    is_just_retried = _is_just_retried(request, row, row.attempt_number)
    return due_attempt(row, redriven=bool(row.redriven), is_just_retried=is_just_retried)


def _is_just_retried(request: ClaimRequest, row: Any, attempt_number: int) -> bool:
    return is_just_retried(attempt_number=attempt_number, delivered_at=row.delivered_at, now=request.now)


def _ordered_run(request: ClaimRequest, row: Any) -> OrderedRun:
    head = row.open.find("1")
    came_back = head >= 0
    numbers = attempt_numbers(row.attempt_numbers)[head:] if came_back else []
    return OrderedRun(
        subscription_id=row.subscription_id,
        attempt_id=row.attempt_id,
        status=row.status,
        next_delivery_at=row.next_delivery_at,
        bits=row.open,
        ordering_key=row.ordering_key,
        left=from_multirange(row.seqs)[head:] if came_back else (),
        numbers=numbers,
        waiting=row.waiting,
        first_publish_time=row.first_publish_time,
        last_publish_time=row.last_publish_time,
        redriven=bool(row.redriven),
        is_just_retried=came_back and _is_just_retried(request, row, numbers[0]),
    )


def look_up_due(trip: RoundTrip, request: ClaimRequest, works: Sequence[Work]) -> None:
    """Find the messages of the rows that are ready, and the next ones of keys."""
    _look_up_rows(trip, request, list(_ask_rows(works)))
    _look_up_keys(trip, request, list(_ask_keys(works)))


def pass_due(trip: RoundTrip, request: ClaimRequest, works: Sequence[Work]) -> None:
    """Once more, and further than anybody would take, where all that was found is past its time."""
    rows = [work for work in works if not work.redeliveries and any(row.past for row in work.due)]
    _look_up_rows(trip, request, list(_ask_rows(rows, most=MAX_DUE_MESSAGES)))
    keys = [
        (work, run, MAX_RUN)
        for work in works
        for run in work.runs
        if run.phase is Phase.LOST and run.past and not run.left
    ]
    for _, run, _ in keys:
        run.past = []  # found again
    _look_up_keys(trip, request, keys)


def _look_up_rows(trip: RoundTrip, request: ClaimRequest, asked: Sequence[tuple[Work, DueAttempt]]) -> None:
    if asked:
        trip.messages += sum(len(row.asked) for _, row in asked)
        runs = [_run(work, row) for work, row in asked]
        distinct = list(dict.fromkeys(runs))  # of endpoints that fail together most are the same
        wanted = _wanted(request, distinct)
        trip.add(
            (_FIND_DUE_MESSAGES, wanted), take=lambda rows: _take_messages(request, asked, runs, distinct, rows)
        )


def _look_up_keys(trip: RoundTrip, request: ClaimRequest, keys: Sequence[tuple[Work, OrderedRun, int]]) -> None:
    if keys:
        redriven = [key for key in keys if key[1].redriven]
        if redriven:  # which may stand among the stragglers: first, for the look in the log is the last
            asked_of = _wanted_of_keys(request, redriven)
            trip.add((_FIND_STRAGGLERS_OF_KEYS, asked_of), take=lambda rows: _take_stragglers(redriven, rows))
        wanted = _wanted_of_keys(request, keys)
        trip.add((_FIND_MESSAGES_OF_KEYS, wanted), take=lambda rows: _take_messages_of_keys(request, keys, rows))


# --- rows of messages without keys --------------------------------------------------------------------------------


def _ask_rows(works: Iterable[Work], most: int | None = None) -> Iterator[tuple[Work, DueAttempt]]:
    room = MAX_DUE_MESSAGES
    for work in works:
        quota = min(most or work.claimant.max_messages, room)
        for row in sorted(work.due, key=_row_order):
            if row.ready:
                count = row.ask(quota)
                quota, room = quota - count, room - count
                if count:
                    yield work, row


def _row_order(row: DueAttempt) -> tuple[Any, ...]:
    return row.is_just_retried, row.next_delivery_at, min(row.open, default=0)


def _run(work: Work, row: DueAttempt) -> tuple[Any, ...]:
    since = row.first_publish_time if row.redriven else max(row.first_publish_time, work.claimant.retained_since)
    seqs = to_multirange(row.asked)
    paths = work.claimant.paths_from(row.first_publish_time)
    return row.first_publish_time, row.last_publish_time, seqs, since, *paths


def _wanted(request: ClaimRequest, runs: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
    columns = ("first_publish_times", "last_publish_times", "seqs", "sinces", "filter_paths", "body_paths")
    values = dict(zip(columns, map(list, zip(*runs, strict=True)), strict=True))
    return {"shard_id": request.shard_id, "overhead": MESSAGE_OVERHEAD, **values}


def _take_messages(
    request: ClaimRequest,
    asked: Sequence[tuple[Work, DueAttempt]],
    runs: Sequence[tuple[Any, ...]],
    distinct: Sequence[tuple[Any, ...]],
    rows: Iterable[Any],
) -> None:
    """Give each work what exists of its due messages, in the order in which they were asked for."""
    existing: dict[tuple[Any, ...], dict[int, Stretch]] = {run: {} for run in distinct}
    at = request.handed_out_at()
    for row in rows:
        publish_time, batch, expires_at = row.publish_time, row.batch, row.expires_at
        existing[distinct[row.run - 1]].update(
            (seq, Stretch(seq, 1, publish_time, batch, size, None, expires_at))
            for seq, size in zip(row.seqs, row.sizes, strict=True)
        )
    for (work, attempt), run in zip(asked, runs, strict=True):
        of_run = existing[run]
        # What the log does not hold any more is not due any more, or it would be due for ever.
        gone = [seq for seq in attempt.asked if seq not in of_run]
        there = [of_run[seq] for seq in attempt.asked if seq in of_run]
        past = [each for each in there if each.expires_at is not None and each.is_past(at) and not attempt.redriven]
        attempt.gone, attempt.past = [*attempt.gone, *gone], [*attempt.past, *past]
        attempt.drop([*gone, *(message.first_seq for message in past)])
        number = attempt.attempt_number + 1
        if attempt.redriven:
            work.redriven.update(attempt.asked)
        work.redeliveries += (
            Redelivery(number, message, attempt.next_delivery_at, attempt.is_just_retried)
            for message in there
            if message.first_seq in attempt.open
        )


# --- rows of ordering keys ----------------------------------------------------------------------------------------


def _ask_keys(works: Iterable[Work]) -> Iterator[tuple[Work, OrderedRun, int]]:
    """The runs that may go out, in their order, and how many messages of each.

    With a dead-letter policy a message that failed before goes out alone: it must not take the messages behind it
    along to the dead-letter topic.
    """
    for work in works:
        due = sorted((run for run in work.runs if run.phase is Phase.DUE), key=due_order)
        if not due:
            continue
        claimant = work.claimant
        most = max(1, min(claimant.max_run, claimant.max_messages // len(due)))
        for run in due:
            yield work, run, run.ask(most, alone=claimant.max_attempts is not None)


def _wanted_of_keys(request: ClaimRequest, keys: Sequence[tuple[Work, OrderedRun, int]]) -> dict[str, Any]:
    runs = [run for _, run, _ in keys]
    paths = [work.claimant.paths_from(run.first_publish_time) for work, run, _ in keys]
    return {
        **request.where([run.subscription_id for run in runs]),
        "ordering_keys": [run.ordering_key for run in runs],
        "first_publish_times": [run.first_publish_time for run in runs],
        "seqs": [to_multirange(run.asked) if run.left else run.waiting for run in runs],
        "limits": [limit for _, _, limit in keys],
        "sinces": [_since(work, run) for work, run, _ in keys],
        "filter_paths": [filter_path for filter_path, _ in paths],
        "body_paths": [body_path for _, body_path in paths],
        "overhead": MESSAGE_OVERHEAD,
    }


def _since(work: Work, run: OrderedRun) -> datetime:
    return run.first_publish_time if run.redriven else work.claimant.retained_since


def _take_stragglers(keys: Sequence[tuple[Work, OrderedRun, int]], rows: Iterable[Any]) -> None:
    for row in rows:
        _, run, _ = keys[row.run - 1]
        run.available.append(_message_of_key(run, row))


def _message_of_key(run: OrderedRun, row: Any) -> Stretch:
    return Stretch(row.seq, 1, row.publish_time, row.batch, row.size, run.ordering_key, row.expires_at)


def _take_messages_of_keys(
    request: ClaimRequest, keys: Sequence[tuple[Work, OrderedRun, int]], rows: Iterable[Any]
) -> None:
    at = request.handed_out_at()
    for row in rows:
        _, run, _ = keys[row.run - 1]
        message = _message_of_key(run, row)
        (run.past if message.is_past(at) and not run.redriven else run.available).append(message)
    for _, run, limit in keys:
        if run.redriven:
            by_seq = {message.first_seq: message for message in run.available}
            run.available = [by_seq[seq] for seq in sorted(by_seq)][:limit]
        run.looked_up()
    for work, of_work in groupby(keys, key=itemgetter(0)):
        work.ready = [run for _, run, _ in of_work if run.phase is Phase.READY]
