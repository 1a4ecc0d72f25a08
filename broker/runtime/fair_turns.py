"""Time that tenants share: whose turn is next, where so many turns are under way at once (M1).

Next is who has the least *virtual time*: what he has used until now, in whatever unit turns are charged in.  First
among projects, then among what the project has.  Who was not there for a while begins at the time of those who are,
so nobody saves up a right to a rush; and who has used more than his part does not get rid of that by leaving for a
moment.  (Start-time fair queueing: Goyal, Vin and Cheng, 1996.)

A turn is not cut short.  So a project whose turns are long does not take the last free slot beside others that it
has: whoever comes finds it free.  And turns that are under way slow each other down, for they share processors: so
a project has a few at once while another one has been there lately, and all when it is alone.

In a project what asks under URGENT, `("projects/p", URGENT, 17)`, has three of four turns while others of it wait.
What projects get stays as it is, and nobody waits for ever (docs/decisions/0052-priority.md).

    turns = FairTurns[str](at_once=6, long=0.02)
    turns.ask(("projects/p", 17), "shard 17")    # any number; they wait
    while (turn := turns.begin()) is not None:   # None: nobody waits, or nobody of those may have what is free
        ...                                      # start what turn.item says, and when that has ended:
        turns.end(turn, seconds)                 # then begin() again

No clock, no tasks.  Each call costs O(log n) in the number of tenants that wait or are in debt, and nothing is kept
of the others.
"""

import heapq
import itertools
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from math import inf
from typing import Generic, TypeVar

from broker.runtime.company import Company

_CREEP = 1 / 8  # what those who are there keep of an equal part, at the least, though newcomers never end

URGENT = ("urgent",)  # in a path, behind the project; nothing else is called so
URGENT_TURNS = 3  # so many in a row, and one for the others, if there are any

T = TypeVar("T")
Path = tuple[Hashable, ...]


@dataclass(eq=False, slots=True)
class _Party(Generic[T]):
    """A project, or one of what it has; the root is all projects.  A leaf has items, others have parties in them.

    `used`: the virtual time.  `expected`: what a turn is charged when it begins; what it cost is known at its end.
    `entry`: its valid entry in a heap of its parent.  Of those within, `active` wait or have a turn, and newcomers
    begin at the virtual time `start`.  `urgent` has turns before them, and `in_a_row` of them until now.
    """

    key: Hashable = None
    used: float = 0.0
    expected: float = 0.0
    waiting: int = 0
    under_way: int = 0
    entry: int = -1
    items: deque[T] = field(default_factory=deque)
    start: float = 0.0
    active: int = 0
    parties: "dict[Hashable, _Party[T]]" = field(default_factory=dict)
    ready: "list[tuple[float, int, _Party[T]]]" = field(default_factory=list)  # heap of those that wait
    in_debt: "list[tuple[float, int, _Party[T]]]" = field(default_factory=list)  # heap of those that do nothing
    urgent: "_Party[T] | None" = None
    in_a_row: int = 0


@dataclass(eq=False, slots=True)
class Turn(Generic[T]):
    """One that is under way.  `charged` so far, of each party from the root's down to the leaf."""

    item: T
    charged: list[tuple[_Party[T], float]]


@dataclass(eq=False, slots=True)
class _Lone(Generic[T]):
    """The only one who asks: there is nothing to share.  `turn`: it is under way."""

    path: Path
    item: T
    turn: Turn[T] | None = None


class FairTurns(Generic[T]):
    """Turns for items of type T, of whoever asks under a path: a project, and something in it."""

    def __init__(self, at_once: int, *, long: float, most: float = inf, company: Company | None = None) -> None:
        """`at_once` turns, 1 or more; a third of them of one project while others are there as well, which
        `company` knows; None: they never are.  A turn that costs `long` or more is a long one.

        No turn is charged more than `most`: what lasts longer waits for a lock or the disk, which nobody has the
        use of, and who paid for all of it would have no turn until each of the others has used as much.
        """
        self._company = company
        self._at_once = at_once
        self._beside = max(at_once // 3, 1)
        self._long = long
        self._most = most
        self._root: _Party[T] = _Party()
        self._entries = itertools.count()
        self._lone: _Lone[T] | None = None  # then there are no parties

    def __len__(self) -> int:
        """How many wait."""
        return self._root.waiting + (self._lone is not None and self._lone.turn is None)

    @property
    def under_way(self) -> int:
        return self._root.under_way + (self._lone is not None and self._lone.turn is not None)

    def ask(self, path: Path, item: T) -> None:
        """Wait for a turn, behind what waits under the same path.  All paths are of one length, 1 or more, but for
        URGENT in them.
        """
        if not self._root.parties:
            if self._lone is None:
                self._lone = _Lone(path, item)
                return
            self._count_lone()
        self._ask(path, item)

    def _ask(self, path: Path, item: T) -> None:
        party = self._root
        party.waiting += 1
        for key in path:
            parent, known = party, party.parties.get(key)
            party = parent.parties[key] = _Party(key) if known is None else known
            party.waiting += 1
            if key is URGENT:
                parent.urgent = party
                parent.active += party.waiting == 1 and not party.under_way
            elif party.waiting == 1:
                parent.active += not party.under_way
                party.used = max(party.used, parent.start)
                self._enter(parent.ready, party)
        party.items.append(item)

    def begin(self) -> Turn[T] | None:
        """Whose turn it is; None if nobody waits, or nobody who may have a slot that is free."""
        if self._lone is not None:
            if self._lone.turn is not None:
                return None
            self._lone.turn = Turn(self._lone.item, [])
            if self._company is not None:
                self._company.had_turn(self._lone.path[0])
            return self._lone.turn
        return self._begin()

    def _begin(self) -> Turn[T] | None:
        free = self._at_once - self._root.under_way
        if free <= 0:
            return None
        company = self._company
        chosen = _least(self._root, below=self._beside if company is not None and company.is_there() else inf)
        if free == 1 and chosen is not None and chosen.under_way and chosen.expected >= self._long:
            chosen = _least(self._root, below=1)
        if chosen is None:
            return None
        if company is not None:
            company.had_turn(chosen.key)
        party, charged = self._root, [(self._root, 0.0)]
        while chosen is not None:
            charged.append((chosen, chosen.expected))
            self._charge(party, chosen)
            party, chosen = chosen, _next_of(chosen)
        self._root.waiting -= 1
        self._root.under_way += 1
        return Turn(party.items.popleft(), charged)

    def end(self, turn: Turn[T], cost: float) -> None:
        """It has ended and did cost so much, 0 or more, in the unit of `long`."""
        if self._lone is not None:  # it was alone until its end
            self._lone = None
            return
        cost = min(cost, self._most)
        self._root.under_way -= 1
        for (parent, _), (party, charged) in itertools.pairwise(turn.charged):
            party.under_way -= 1
            party.used += cost - charged
            party.expected = max(cost, party.expected / 2)
            if party is parent.urgent:
                _leave_if_idle(parent, party)
                continue
            parent.start += cost * _CREEP / parent.active
            if party.waiting:
                self._enter(parent.ready, party)
            elif not party.under_way:
                parent.active -= 1
                self._enter(parent.in_debt, party)
            _forget_idle(parent)

    def _count_lone(self) -> None:
        """It is alone no more: as if it had been counted from the beginning."""
        lone, self._lone = self._lone, None
        assert lone is not None
        self._ask(lone.path, lone.item)
        if lone.turn is not None:
            begun = self._begin()
            assert begun is not None
            lone.turn.charged += begun.charged

    def _charge(self, parent: _Party[T], party: _Party[T]) -> None:
        """A turn within it begins."""
        if party is not parent.urgent:  # whose time is none that newcomers could begin at
            parent.start = max(parent.start, party.used)
        party.used += party.expected
        party.waiting -= 1
        party.under_way += 1
        if party.waiting and party is not parent.urgent:
            self._enter(parent.ready, party)
        else:
            party.entry = -1
        _forget_idle(parent)

    def _enter(self, heap: "list[tuple[float, int, _Party[T]]]", party: _Party[T]) -> None:
        """Any entry that it had before is void, and goes when it comes to the top."""
        party.entry = next(self._entries)
        heapq.heappush(heap, (party.used, party.entry, party))


def _least(parent: _Party[T], *, below: float = inf) -> _Party[T] | None:
    """Who has used least of those that wait and have fewer than `below` turns, so it passes by as many as there are
    slots.
    """
    passed = []
    chosen = None
    while parent.ready and chosen is None:
        _, entry, party = parent.ready[0]
        if entry == party.entry and party.under_way < below:
            chosen = party
        else:
            passed.append(heapq.heappop(parent.ready))
    for used, entry, party in passed:
        if entry == party.entry:
            heapq.heappush(parent.ready, (used, entry, party))
    return chosen


def _next_of(parent: _Party[T]) -> _Party[T] | None:
    """Who is next in what begins a turn: what is urgent, but for the others' turn in four; None: it has items."""
    urgent = parent.urgent
    others_wait = urgent is not None and parent.waiting >= urgent.waiting  # the one that begins waits no more
    if urgent is None or not urgent.waiting or (others_wait and parent.in_a_row >= URGENT_TURNS):
        parent.in_a_row = 0
        return _least(parent)
    parent.in_a_row += others_wait
    return urgent


def _leave_if_idle(parent: _Party[T], urgent: _Party[T]) -> None:
    """Nothing is remembered of what is urgent: it owes the others nothing."""
    if not urgent.waiting and not urgent.under_way:
        parent.active -= 1
        parent.urgent = None
        del parent.parties[urgent.key]
        _forget_idle(parent)


def _forget_idle(parent: _Party[T]) -> None:
    """Who does nothing and has used no more than who is there now; if nobody is there, all."""
    if not parent.active:
        parent.parties.clear()
        parent.ready.clear()
        parent.in_debt.clear()
        parent.start, parent.urgent = 0.0, None
        return
    while parent.in_debt:
        used, entry, party = parent.in_debt[0]
        if entry == party.entry:
            if used > parent.start:
                return
            del parent.parties[party.key]
        heapq.heappop(parent.in_debt)
