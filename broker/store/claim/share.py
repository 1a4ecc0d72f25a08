"""Who gets what: each claimant's portion of what there is (domain/delivery.py, domain/ordered_run.py)."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from broker.domain.delivery import Demand, Redelivery, Share, as_attempts, even_parts, left_over, share_out
from broker.domain.due_share import DueShare, share_of_due
from broker.domain.ordered_run import give_runs, share_in_order
from broker.domain.stretch import Source, Stretch, count_of, size_of
from broker.store.claim.fresh import may_go
from broker.store.claim.past_time import passed
from broker.store.claim.request import MAX_BYTES, ClaimRequest
from broker.store.claim.work import Parcel, Portion, Work


def share(request: ClaimRequest, works: Sequence[Work]) -> None:
    """Give each work its portion, while the bodies of all together are not too large.

    Those that are alike share one, which is cut up once.
    """
    batches: set[int] = set()  # that are to be read
    left = MAX_BYTES

    def with_room_for(portion: Portion) -> Portion:
        nonlocal left
        if len(works) == 1:  # whoever comes first gets all that he takes
            return portion
        new = [stretch for stretch in portion.stretches if stretch.batch not in batches]
        size = size_of(new)
        if batches and size > left:
            return Portion(more=True)
        left -= size
        batches.update(stretch.batch for stretch in new)
        return portion

    for work in works:
        alike = work.place.portions if work.is_plain else {}
        appetite = work.claimant.appetite
        if appetite not in alike:
            work.portion = alike[appetite] = with_room_for(_portion(request, work))
            _take_out(work)
            work.portion.parcels = list(_parcels(work))
        work.portion = alike[appetite]


def _portion(request: ClaimRequest, work: Work) -> Portion:
    """What is due and what is fresh, by halves where both compete (domain/due_share.py)."""
    claimant, place = work.claimant, work.place
    fresh = place.claimable(claimant.digest, request.now)
    runs_due, redeliveries = work.ready, work.redeliveries
    if claimant.leaves_just_retried:
        runs_due = [run for run in runs_due if not run.is_just_retried]
        redeliveries = [each for each in redeliveries if not each.is_just_retried]
    due = share_of_due(
        runs_due,
        redeliveries,
        fresh,
        max_messages=claimant.max_messages,
        max_bytes=claimant.max_bytes,
        due_first=work.cursor.due_first,
    )
    work.passes_turn = due.passes_turn
    demands = _even_parts(work, due, fresh)
    runs = give_runs(due.runs, demands, claimant.preferred)
    if due.runs:
        demands = left_over(demands, [[message for _, taken in given for message in taken] for given in runs])
    if claimant.ordered:
        shares, rest = _share_in_order(work, demands, due.redeliveries, fresh)
    else:
        source = Source(fresh)
        shares = share_out(demands, due.redeliveries, source)
        rest = source.rest()
    return _with_rest(request, work, Portion(runs, shares), rest if fresh else None)


def _share_in_order(
    work: Work, demands: Sequence[Demand], redeliveries: Sequence[Redelivery], fresh: Sequence[Stretch]
) -> tuple[list[Share], list[Stretch]]:
    shares = share_out(demands, redeliveries, Source(()))
    left = left_over(demands, [each.stretches for each in shares])
    given, considered = share_in_order(left, fresh, work.claimant.max_run, work.claimant.preferred)
    for each, messages in zip(shares, given, strict=True):
        each.fresh = messages
    return shares, list(islice(fresh, considered, None))


def _even_parts(work: Work, due: DueShare, fresh: Sequence[Stretch]) -> Sequence[Demand]:
    """The demands, those that share evenly bounded by their part of what there is."""
    demands = work.claimant.demands
    if len(demands) == 1:
        return demands
    available = due.count + count_of(fresh)
    among = available
    if work.claimant.ordered:  # a key goes to one demand
        keys = {message.ordering_key or message.first_seq for message in fresh}
        among = len(due.redeliveries) + len(due.runs) + len(keys)
    return even_parts(demands, available, among=among)


def _with_rest(request: ClaimRequest, work: Work, portion: Portion, rest: Sequence[Stretch] | None) -> Portion:
    """With what is left of the fresh messages (`rest` None: all): where the cursor goes, and when to look again."""
    fresh, digest = work.place.fresh, work.claimant.digest
    if fresh is None:  # the claim had no room to look at the place
        portion.more = True
        return portion
    left = fresh.stretches if rest is None else rest
    position = fresh.position_after(left)
    if position is not None and position[1] > work.cursor.next_seq:
        portion.position = position
        portion.past = passed(portion, fresh.past, position[1])
    if not left:
        portion.more = not fresh.all_seen
    elif may_go(digest, left, request.now):
        portion.more = True
    elif digest is not None:
        portion.until = left[0].publish_time + digest.max_delay
    return portion


def _take_out(work: Work) -> None:
    """Take what is delivered anew out of its rows, and note which runs go out."""
    for runs in work.portion.runs:
        for run, messages in runs:
            run.take(messages)
    again = {
        message.first_seq
        for each in work.portion.shares
        for messages in each.redelivered.values()
        for message in messages
    }
    for row in work.due:
        row.drop([seq for seq in row.asked if seq in row.open and seq in again])


def _parcels(work: Work) -> Iterator[Parcel]:
    """For each demand keys that are due, other redeliveries and fresh messages, fresh keys."""
    portion, ordered = work.portion, work.claimant.ordered
    for demand, (runs, share) in enumerate(zip(portion.runs, portion.shares, strict=True)):
        for run, taken in runs:
            yield Parcel(demand, run.next_number, taken, run=run, ordered=True, returned=len(run.behind()))
        fresh = [message for message in share.fresh if message.ordering_key is None] if ordered else share.fresh
        for number, stretches in as_attempts(share.redelivered, fresh):
            if work.redriven:
                yield from _apart(work, Parcel(demand, number, stretches))
            else:
                yield Parcel(demand, number, stretches)
        if ordered:
            for of_key in _by_key(share.fresh):
                yield Parcel(demand, 1, of_key, ordered=True)


def _apart(work: Work, parcel: Parcel) -> Iterator[Parcel]:
    """What came back from a dead-letter topic in a row of its own, which says so."""
    for redriven in (False, True):
        some = [each for each in parcel.stretches if (each.first_seq in work.redriven) is redriven]
        if some:
            yield Parcel(parcel.demand, parcel.number, some, redriven=redriven)


def _by_key(fresh: Iterable[Stretch]) -> Iterable[Sequence[Stretch]]:
    runs: dict[str, list[Stretch]] = {}
    for message in fresh:
        if message.ordering_key is not None:
            runs.setdefault(message.ordering_key, []).append(message)
    return runs.values()
