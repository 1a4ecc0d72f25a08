"""Fair turns: determines whose turn is next if only a limited number may be in progress at a time (M1).

The tenant with the least *virtual time* is next: what its turns have cost so far, in whatever unit they are
charged.  The rule applies first among projects, then among the tenants of each project.  A tenant that was away
starts at the virtual time of those that are present, so no tenant saves up a right to a burst, and a tenant that
has used more than its share does not lose that debt by leaving for a moment.  (Start-time fair queueing:  Goyal,
Vin and Cheng, 1996.)

A turn is not interrupted.  Therefore a project with long turns does not take the last free slot in addition to
others that it has, so that a newcomer finds it free.  Turns in progress slow each other down, because they share
processors: while several projects use the process, each has a third of the slots, and a project that has the
process to itself has all of them.

Within a project, turns whose path has URGENT, as in `("projects/p", URGENT, 17)`, are three of four while others of
the project wait.  The share of the project does not change, and no tenant waits for ever
(docs/decisions/0052-priority.md).

    turns = FairTurns[TurnFor[str]](slots=6, long=0.02)
    turns.ask(TurnFor(("projects/p", 17), item="shard 17"))    # any number; they wait
    while (turn := turns.begin()) is not None:  # None: none waits, or none of those that wait may have a free slot
        ...                                     # start the work of turn.item, and when that has ended:
        turns.end(turn, seconds)                # then begin() again

`turns.py` is for code that awaits a turn.  This module has no clock and no tasks.  Each call costs O(log n) in the
number of tenants that wait or are in debt, and no state is kept of other tenants.
"""

import heapq
import itertools
from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Generic, TypeVar

from broker.fairness.tenants import Tenants

_CREEP = 1 / 8  # of an equal part: what tenants that stay keep at the least, though newcomers never end

URGENT = ("urgent",)  # in a path, behind the project; compared by identity
URGENT_TURNS = 3  # in a row, before one of the others, if any wait

T = TypeVar("T")
Path = tuple[Hashable, ...]


@dataclass(eq=False, slots=True)
class Turn:
    """A turn that waits, or is under way.

    `charged`: each tenant of its path, root first, and what it was charged when the turn began.
    """

    path: Path
    begun: bool = False
    charged: "Sequence[tuple[_Tenant[Any], float]]" = ()


@dataclass(eq=False, slots=True)
class TurnFor(Turn, Generic[T]):
    """A turn for something that does not await it."""

    item: T = field(kw_only=True)


A = TypeVar("A", bound=Turn)


@dataclass(eq=False, slots=True)
class _Tenant(Generic[A]):
    """A project, or one part of it; the root is all projects.  A leaf has turns, others have tenants in them.

    `used`: the virtual time.  `expected`: what a turn is charged when it begins, since its cost is known at its
    end.  `entry`: its valid entry in a heap of its parent.  Of the tenants within, `active` ones wait or have a
    turn, and newcomers begin at the virtual time `start`.  `urgent` has turns before the others, and had
    `in_a_row` of them.
    """

    key: Hashable = None
    used: float = 0.0
    expected: float = 0.0
    waiting: int = 0
    under_way: int = 0
    entry: int = -1
    turns: deque[A] = field(default_factory=deque)  # that wait
    start: float = 0.0
    active: int = 0
    tenants: "dict[Hashable, _Tenant[A]]" = field(default_factory=dict)
    ready: "list[tuple[float, int, _Tenant[A]]]" = field(default_factory=list)  # heap of those that wait
    in_debt: "list[tuple[float, int, _Tenant[A]]]" = field(default_factory=list)  # heap of those that do nothing
    urgent: "_Tenant[A] | None" = None
    in_a_row: int = 0


class FairTurns(Generic[A]):
    """Turns by path: a project, and what there is within it."""

    def __init__(
        self,
        slots: int,
        *,
        long: float,
        max_charged: float = inf,
        tenants: Tenants | None = None,
        contended_slots: int | None = None,
    ) -> None:
        """`slots`: how many turns are under way at a time, 1 or more.  A turn that costs `long` or more is long.

        While `tenants` says that several projects use the process, each has `contended_slots`, a third of the
        slots unless given; without `tenants` it always has all.  No turn is charged more than `max_charged`: one
        that lasts longer waits for a lock or the disk, and a tenant that paid for all of that time would have no
        turn until each of the others has used as much.
        """
        self._tenants = tenants
        self._slots = slots
        self._contended_slots = contended_slots or max(slots // 3, 1)
        self._long = long
        self._max_charged = max_charged
        self._root: _Tenant[A] = _Tenant()
        self._entries = itertools.count()
        # The only turn that waits or is under way: nothing is counted while there is no other, as nothing is
        # shared.
        self._lone: A | None = None

    def __len__(self) -> int:
        """Returns how many turns wait."""
        return self._root.waiting + (self._lone is not None and not self._lone.begun)

    @property
    def under_way(self) -> int:
        return self._root.under_way + (self._lone is not None and self._lone.begun)

    def ask(self, turn: A) -> None:
        """Have a turn wait, behind those that wait under the same path.  All paths have the same length, 1 or more,
        apart from URGENT in them.
        """
        if self._lone is not None:
            self._count_lone()
        elif not self._root.tenants:
            self._lone = turn
            return
        self._queue(turn)

    def begin(self) -> A | None:
        """Begins the next turn; None if no turn waits, or none that waits may have a free slot."""
        lone = self._lone
        if lone is None:
            return self._begin_next()
        if lone.begun:
            return None
        self._lone = None
        self.begin_alone(lone)
        return lone

    def begin_alone(self, turn: A) -> bool:
        """Begin a turn at once if no other waits or is under way; otherwise it has not been asked for."""
        if self._lone is not None or self._root.tenants:
            return False
        self._lone = turn
        turn.begun = True
        if self._tenants is not None and self._tenants.latest != turn.path[0]:
            self._tenants.note_turn(turn.path[0])
        return True

    def end(self, turn: A, cost: float) -> bool:
        """End a turn that is under way.  It did cost so much, 0 or more, in the unit of `long`.

        Returns whether any waits.
        """
        if self._lone is not None:  # no other has come meanwhile
            self._lone = None
            return False
        cost = min(cost, self._max_charged)
        self._root.under_way -= 1
        for (parent, _), (tenant, charged) in itertools.pairwise(turn.charged):
            tenant.under_way -= 1
            tenant.used += cost - charged
            tenant.expected = max(cost, tenant.expected / 2)
            if tenant is parent.urgent:
                _leave_if_idle(parent, tenant)
                continue
            parent.start += cost * _CREEP / parent.active
            if tenant.waiting:
                self._enter(parent.ready, tenant)
            elif not tenant.under_way:
                parent.active -= 1
                self._enter(parent.in_debt, tenant)
            _forget_idle(parent)
        return self._root.waiting > 0

    def withdraw(self, turn: A) -> None:
        """Forget a turn that waits."""
        if turn is self._lone:
            self._lone = None
            return
        tenants = [self._root]
        for key in turn.path:
            tenants.append(tenants[-1].tenants[key])
        tenants[-1].turns.remove(turn)
        for tenant in tenants:
            tenant.waiting -= 1
        for parent, tenant in itertools.pairwise(tenants):
            if tenant is parent.urgent:
                _leave_if_idle(parent, tenant)
                continue
            if not tenant.waiting:
                tenant.entry = -1
                if not tenant.under_way:
                    parent.active -= 1
                    self._enter(parent.in_debt, tenant)
            _forget_idle(parent)
            _drop_void(parent)

    def _count_lone(self) -> None:
        """Count the lone turn as if it had been counted from the beginning."""
        lone, self._lone = self._lone, None
        assert lone is not None
        self._queue(lone)
        if lone.begun:
            self._begin_next()

    def _queue(self, turn: A) -> None:
        tenant = self._root
        tenant.waiting += 1
        for key in turn.path:
            parent, known = tenant, tenant.tenants.get(key)
            tenant = parent.tenants[key] = _Tenant(key) if known is None else known
            tenant.waiting += 1
            if key is URGENT:
                parent.urgent = tenant
                parent.active += tenant.waiting == 1 and not tenant.under_way
            elif tenant.waiting == 1:
                parent.active += not tenant.under_way
                tenant.used = max(tenant.used, parent.start)
                self._enter(parent.ready, tenant)
        tenant.turns.append(turn)

    def _begin_next(self) -> A | None:
        free = self._slots - self._root.under_way
        if free <= 0:
            return None
        tenants = self._tenants
        is_contended = tenants is not None and tenants.is_contended()
        chosen = _least(self._root, below=self._contended_slots if is_contended else inf)
        if free == 1 and chosen is not None and chosen.under_way and chosen.expected >= self._long:
            chosen = _least(self._root, below=1)
        if chosen is None:
            return None
        if tenants is not None:
            tenants.note_turn(chosen.key)
        tenant, charged = self._root, [(self._root, 0.0)]
        while chosen is not None:
            charged.append((chosen, chosen.expected))
            self._charge(tenant, chosen)
            tenant, chosen = chosen, _next_of(chosen)
        self._root.waiting -= 1
        self._root.under_way += 1
        turn = tenant.turns.popleft()
        turn.begun, turn.charged = True, charged
        return turn

    def _charge(self, parent: _Tenant[A], tenant: _Tenant[A]) -> None:
        """Count a turn within the tenant that begins."""
        if tenant is not parent.urgent:  # newcomers do not begin at its time
            parent.start = max(parent.start, tenant.used)
        tenant.used += tenant.expected
        tenant.waiting -= 1
        tenant.under_way += 1
        if tenant.waiting and tenant is not parent.urgent:
            self._enter(parent.ready, tenant)
        else:
            tenant.entry = -1
        _forget_idle(parent)

    def _enter(self, heap: "list[tuple[float, int, _Tenant[A]]]", tenant: _Tenant[A]) -> None:
        """Adds an entry for a tenant.  An earlier one is void, and is removed when it comes to the top."""
        tenant.entry = next(self._entries)
        heapq.heappush(heap, (tenant.used, tenant.entry, tenant))


def _least(parent: _Tenant[A], *, below: float = inf) -> _Tenant[A] | None:
    """The tenant that has used least of those that wait and have fewer than `below` turns.

    It passes by no more tenants than there are slots.
    """
    passed = []
    chosen = None
    while parent.ready and chosen is None:
        _, entry, tenant = parent.ready[0]
        if entry == tenant.entry and tenant.under_way < below:
            chosen = tenant
        else:
            passed.append(heapq.heappop(parent.ready))
    for used, entry, tenant in passed:
        if entry == tenant.entry:
            heapq.heappush(parent.ready, (used, entry, tenant))
    return chosen


def _next_of(parent: _Tenant[A]) -> _Tenant[A] | None:
    """The next tenant within one that begins a turn: the urgent one, but for one turn in four; None: it is a
    leaf.
    """
    urgent = parent.urgent
    others_wait = urgent is not None and parent.waiting >= urgent.waiting  # the one that begins waits no more
    if urgent is None or not urgent.waiting or (others_wait and parent.in_a_row >= URGENT_TURNS):
        parent.in_a_row = 0
        return _least(parent)
    parent.in_a_row += others_wait
    return urgent


def _leave_if_idle(parent: _Tenant[A], urgent: _Tenant[A]) -> None:
    """Forget an urgent tenant that does nothing: it owes the others nothing."""
    if not urgent.waiting and not urgent.under_way:
        parent.active -= 1
        parent.urgent = None
        del parent.tenants[urgent.key]
        _forget_idle(parent)


def _forget_idle(parent: _Tenant[A]) -> None:
    """Forgets idle tenants that have used no more than those that are active; all, if none is active."""
    if not parent.active:
        parent.tenants.clear()
        parent.ready.clear()
        parent.in_debt.clear()
        parent.start, parent.urgent = 0.0, None
        return
    while parent.in_debt:
        used, entry, tenant = parent.in_debt[0]
        if entry == tenant.entry:
            if used > parent.start:
                return
            del parent.tenants[tenant.key]
        heapq.heappop(parent.in_debt)


def _drop_void(parent: _Tenant[A]) -> None:
    """Keep entries of turns that were withdrawn from piling up while no turn begins."""
    if len(parent.ready) > 2 * len(parent.tenants):
        parent.ready = [each for each in parent.ready if each[1] == each[2].entry]
        heapq.heapify(parent.ready)
