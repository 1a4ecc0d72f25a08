"""The last round trip of a claim: writes what was decided, reads each body once, and commits."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from broker.domain.delivery import Delivery
from broker.domain.journal import Event, rows_of
from broker.domain.ordered_run import Phase
from broker.domain.stretch import count_of, multirange
from broker.store.claim.bodies import Bodies, read_bodies
from broker.store.claim.columns import by_column
from broker.store.claim.expired import expired_again, expired_unread
from broker.store.claim.ordered import new_runs, retimed_rows, rewrite_runs
from broker.store.claim.past_time import count_past, given_up, rows_of_past
from broker.store.claim.request import Claimed, ClaimRequest, More, Quiet, ack_deadlines
from broker.store.claim.round_trip import RoundTrip
from broker.store.claim.work import Parcel, Work
from broker.store.driver import statements
from broker.store.driver.hot_connection import NOTHING_CHANGED, Bound, HotConnection, NeedsCoordinator
from broker.store.driver.statements import COMMIT
from broker.store.log.attempt_ids import AttemptIds
from broker.store.log.due_attempt import replacements
from broker.store.log.journal import journal_statement

_REPLACE_ATTEMPTS = statements.hot("replace_attempts")
_MOVE_CURSOR = statements.hot("move_cursor")
_MOVE_CURSORS = statements.hot("move_cursors")
_READ_NEXT_DELIVERY_AT = statements.hot("read_next_delivery_at")
_READ_NEXT_DELIVERY_ATS = statements.hot("read_next_delivery_ats")
_INSERT_DELIVERY_ATTEMPT = statements.hot("insert_delivery_attempt")
_INSERT_DELIVERY_ATTEMPTS = statements.hot("insert_delivery_attempts")
# What a claim for one pull sends in place of the others where shards lie on nodes (docs/decisions/0059).
_OF_ONE = {_MOVE_CURSORS: _MOVE_CURSOR, _READ_NEXT_DELIVERY_ATS: _READ_NEXT_DELIVERY_AT}
_INSERT_GIVEN_UP = statements.hot("insert_given_up")
_MARK_REDRIVEN = statements.hot("mark_redriven")


class _Attempt(msgspec.Struct, frozen=True):
    """A parcel on its way to a claimant."""

    work: Work
    parcel: Parcel
    attempt_id: int


async def write(
    connection: HotConnection,
    request: ClaimRequest,
    works: Sequence[Work],
    attempt_ids: AttemptIds,
    bodies: Bodies,
    again: int,
) -> Mapping[int, Claimed]:
    """Make it so, durably if anything is handed out; what became of each, by subscription_id.

    `again`: so many messages were due.
    Raises NeedsCoordinator; nothing is written then.
    """
    attempts = list(_attempts(request, works, attempt_ids))
    at = request.handed_out_at()
    asking = [work for work in works if _asks_for_next(work)]
    upcoming: dict[int, datetime] = {}
    trip = RoundTrip()
    trip.add(*_rewritten_rows(request, works), *_of_one(connection, _moved_cursors(request, works)))
    # Before what goes out now is written, which is not meant, and after retry delays were.
    trip.add(
        *_of_one(connection, _next_delivery_ats(request, asking)),
        take=lambda rows: upcoming.update((row.subscription_id, row.next_delivery_at) for row in rows),
    )
    trip.add(*rewrite_runs(request, works, at), *_new_rows(request, attempts, at))
    if letters := given_up(request, works, attempt_ids, at):
        trip.add((_INSERT_GIVEN_UP, letters))
    journal = list(_journal(request, works, attempts, at))
    if journal and not connection.gives_numbers:
        raise NeedsCoordinator
    trip.add(*journal)
    trip.add(*read_bodies(request, [attempt.parcel.stretches for attempt in attempts], bodies), take=bodies.add)
    # Without attempts nothing need wait for the disk: what was passed over would only be passed over again.
    trip.add(*(((COMMIT, {}),) if attempts else NOTHING_CHANGED))
    trip.messages = again
    await trip.run(connection, request.turn)
    deliveries = _deliveries(request, attempts, bodies)
    return {work.subscription_id: _claimed(work, deliveries, upcoming.get(work.subscription_id)) for work in works}


def _claimed(
    work: Work, deliveries: Mapping[tuple[int, int], Sequence[Delivery]], upcoming: datetime | None
) -> Claimed:
    expired = 0
    if work.due or work.runs:
        expired = sum(row.expired for row in work.due) + sum(run.expired for run in work.runs)
    return Claimed(
        [deliveries.get((work.subscription_id, number), ()) for number in range(len(work.claimant.demands))],
        _rest(work, upcoming),
        expired,
        count_past(work),
        work.only_just_retried,
    )


def _asks_for_next(work: Work) -> bool:
    """Whether somebody wants to know when the next redelivery falls due."""
    claimant = work.claimant
    wants = claimant.looks_for_due and (claimant.wants_next or work.portion.hungry)
    return wants and not work.more


def _rest(work: Work, upcoming: datetime | None) -> More | Quiet:
    if work.more:
        return More()
    return Quiet(min((time for time in (upcoming, work.portion.until) if time is not None), default=None))


# --- what goes out ------------------------------------------------------------------------------------------------


def _attempts(request: ClaimRequest, works: Sequence[Work], attempt_ids: AttemptIds) -> Iterator[_Attempt]:
    """What goes out.  A run that does, or has lost messages, gets a new attempt id."""
    going_out = [(work, parcel) for work in works for parcel in work.portion.parcels]
    lost = [run for work in works for run in work.runs if run.phase is Phase.LOST]
    ids = iter(attempt_ids.take(len(going_out) + len(lost), now=request.now))
    for run in lost:
        run.new_attempt_id = next(ids)
    for (work, parcel), attempt_id in zip(going_out, ids, strict=True):
        if parcel.run is not None:
            parcel.run.new_attempt_id = attempt_id
        yield _Attempt(work, parcel, attempt_id)


def _deliveries(
    request: ClaimRequest, attempts: Iterable[_Attempt], bodies: Bodies
) -> dict[tuple[int, int], list[Delivery]]:
    """By subscription and demand.

    A message whose partition was dropped since it was found is missing.  Its whole attempt is left to fall due,
    when it is taken out as every redelivery is that the log has no more.
    """
    deliveries: defaultdict[tuple[int, int], list[Delivery]] = defaultdict(list)
    for attempt in attempts:
        parcel = attempt.parcel
        messages = bodies.of(parcel.stretches)
        if messages is not None:
            deliveries[attempt.work.claimant.subscription_id, parcel.demand].append(
                Delivery(
                    request.shard_id, attempt.attempt_id, parcel.number, messages, parcel.ordered, parcel.returned
                )
            )
    return deliveries


# --- what is written ----------------------------------------------------------------------------------------------


def _rewritten_rows(request: ClaimRequest, works: Sequence[Work]) -> Iterator[Bound]:
    """What is left of the due rows, if any has changed."""
    columns = replacements([(work.subscription_id, row) for work in works for row in work.due])
    retimed = list(retimed_rows(works))
    if retimed:
        of_runs = by_column(retimed)
        columns = of_runs if columns is None else {name: columns[name] + of_runs[name] for name in of_runs}
    if columns:
        yield _REPLACE_ATTEMPTS, {"shard_id": request.shard_id, **columns}


def _moved_cursors(request: ClaimRequest, works: Iterable[Work]) -> Iterator[Bound]:
    """Only of those that have passed something, or have looked at something due."""
    moved = [work for work in works if work.portion.position is not None or work.due or work.runs]
    if moved:
        positions = [work.portion.position or work.cursor[:2] for work in moved]
        yield (
            _MOVE_CURSORS,
            {
                **request.where([work.subscription_id for work in moved]),
                "next_publish_times": [publish_time for publish_time, _ in positions],
                "next_seqs": [seq for _, seq in positions],
                "due_floors": [work.due_floor(request.now) for work in moved],
                "due_firsts": [work.due_first for work in moved],
            },
        )


def _next_delivery_ats(request: ClaimRequest, asking: Sequence[Work]) -> Iterator[Bound]:
    if asking:
        where = request.where([work.subscription_id for work in asking])
        yield _READ_NEXT_DELIVERY_ATS, {**where, "now": request.now}


def _of_one(connection: HotConnection, each: Iterable[Bound]) -> Iterator[Bound]:
    """The same, by a statement for one subscription if it is about one, and shards lie on nodes.

    Its parameters have the names of the other's in the singular.
    """
    for statement, given in each:
        of_one = _OF_ONE.get(statement)
        if of_one is not None and connection.is_distributed and len(given["subscription_ids"]) == 1:
            single = {name.removesuffix("s"): value[0] for name, value in given.items() if isinstance(value, list)}
            yield of_one, {name: value for name, value in given.items() if not isinstance(value, list)} | single
        else:
            yield statement, given


def _new_rows(request: ClaimRequest, attempts: Sequence[_Attempt], at: datetime) -> Iterator[Bound]:
    plain = [attempt for attempt in attempts if not attempt.parcel.ordered]
    if plain:
        yield _insert(plain, {"shard_id": request.shard_id, "now": at})
    redriven = [attempt for attempt in plain if attempt.parcel.redriven]
    if redriven:
        where = request.where([attempt.work.subscription_id for attempt in redriven])
        yield _MARK_REDRIVEN, {**where, "attempt_ids": [attempt.attempt_id for attempt in redriven]}
    of_keys = [attempt for attempt in attempts if attempt.parcel.ordered and attempt.parcel.run is None]
    yield from new_runs(request, [(a.work.claimant, a.attempt_id, a.parcel.stretches) for a in of_keys], at)


def _journal(
    request: ClaimRequest, works: Sequence[Work], attempts: Sequence[_Attempt], at: datetime
) -> Iterator[Bound]:
    """What goes out, of subscriptions that have it written down, and what is past its time, or its retention."""
    told = [attempt for attempt in attempts if attempt.work.claimant.journal is not None]
    rows = [
        row
        for attempt in told
        for row in rows_of(
            attempt.work.claimant.journal,
            attempt.work.subscription_id,
            Event.HANDED_OUT,
            attempt.parcel.number,
            [(stretch.first_seq, stretch.end) for stretch in attempt.parcel.stretches],
            author=attempt.work.claimant.demands[attempt.parcel.demand].author,
        )
    ]
    rows += rows_of_past(works)
    if rows:
        yield journal_statement(request.shard_id, rows, at)
    yield from expired_again(request, works, at)
    yield from expired_unread(request, works, at)


def _insert(plain: Sequence[_Attempt], of_all: dict[str, Any]) -> Bound:
    rows = _plain_rows(plain, of_all["now"])
    if len(plain) > 1:
        return _INSERT_DELIVERY_ATTEMPTS, {**of_all, **rows}
    return _INSERT_DELIVERY_ATTEMPT, {**of_all, **{name: value for name, [value] in rows.items()}}


def _plain_rows(attempts: Sequence[_Attempt], at: datetime) -> dict[str, Any]:
    claimants = [attempt.work.claimant for attempt in attempts]
    runs = [attempt.parcel.stretches for attempt in attempts]
    distinct = {id(run): run for run in runs}  # rows often hold the very same
    held = {name: (multirange(run), count_of(run)) for name, run in distinct.items()}
    return {
        "subscription_ids": [claimant.subscription_id for claimant in claimants],
        "attempt_ids": [attempt.attempt_id for attempt in attempts],
        "attempt_numbers": [attempt.parcel.number for attempt in attempts],
        "ack_deadlines": ack_deadlines(claimants, at),
        "exactly_once": [claimant.exactly_once for claimant in claimants],
        "seqs": [held[id(run)][0] for run in runs],
        "counts": [held[id(run)][1] for run in runs],
        "first_publish_times": [run[0].publish_time for run in runs],
        "last_publish_times": [run[-1].publish_time for run in runs],
    }
