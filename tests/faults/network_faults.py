"""The network fails between clients and brokers, or between brokers and their database.

Half of the time it fails for one of several brokers, else for all.
"""

import random
from collections.abc import Callable
from typing import Literal, TypeAlias

import psutil

from tests.faults.network import Ailing
from tests.faults.proxy import BOTH_WAYS, Ailment
from tests.faults.world import World

Side: TypeAlias = Literal["clients", "database"]


class Ails:
    """An ailment of doors, from its injection until it is healed."""

    def __init__(self, name: str, side: Side, choose: Callable[[random.Random], Ailment]) -> None:
        """`choose`: what it is this time."""
        self.name = name
        self._side, self._choose = side, choose
        self._ailment = Ailment()
        self._ailing: list[Ailing] = []

    async def inject(self, world: World) -> None:
        self._ailment = self._choose(world.dice)
        for gate in _gates(world, self._side):
            self._ailing.append(await world.network.afflict(gate, self._ailment))

    async def heal(self, world: World) -> None:
        """What was held goes on, or is reset, too."""
        cut = bool(self._ailment.hold) and world.dice.random() < 0.5
        for ailing in self._ailing:
            await world.network.relieve(ailing, cut=cut)


class Cuts:
    """All connections through an API are reset; new ones are whole."""

    def __init__(self, name: str, side: Side) -> None:
        self.name = name
        self._side: Side = side

    async def inject(self, world: World) -> None:
        for gate in _gates(world, self._side):
            await world.network.cut(gate)

    async def heal(self, world: World) -> None:
        """They are made anew."""


def _gates(world: World, side: Side) -> list[str]:
    gates = world.client_gates if side == "clients" else world.database_gates
    if not gates:
        raise psutil.NoSuchProcess(0)
    return gates if world.dice.random() < 0.5 else [world.dice.choice(gates)]


def _refuse(dice: random.Random) -> Ailment:
    return Ailment(refuse=True)


def _vanish(dice: random.Random) -> Ailment:
    return Ailment(hold=BOTH_WAYS)


def _half_open(dice: random.Random) -> Ailment:
    return Ailment(drop=(dice.choice(BOTH_WAYS),))


def _delay(dice: random.Random) -> Ailment:
    return Ailment(delay={way: dice.choice((0.0, 0.05, 0.3, 1.0)) for way in BOTH_WAYS})


def _delay_a_little(dice: random.Random) -> Ailment:
    """A statement of the broker's is one of several round trips."""
    return Ailment(delay={way: dice.choice((0.0, 0.01, 0.05, 0.2)) for way in BOTH_WAYS})


def _lose_answers(dice: random.Random) -> Ailment:
    return Ailment(lose=dice.choice((0.05, 0.3)))


def _lose_answers_to_commits(dice: random.Random) -> Ailment:
    return Ailment(lose=dice.choice((0.05, 0.3)), commits=True)


def _trickle(dice: random.Random) -> Ailment:
    return Ailment(trickle=dice.choice((20, 100, 500)))


AILMENTS: dict[str, tuple[Side, Callable[[random.Random], Ailment]]] = {
    "refuse clients": ("clients", _refuse),
    "clients vanish": ("clients", _vanish),
    "half-open clients": ("clients", _half_open),
    "delay clients": ("clients", _delay),
    "lose answers to clients": ("clients", _lose_answers),
    "trickle to clients": ("clients", _trickle),
    "refuse the database": ("database", _refuse),
    "database vanishes": ("database", _vanish),
    "half-open database": ("database", _half_open),
    "delay the database": ("database", _delay_a_little),
    "lose answers after commit": ("database", _lose_answers_to_commits),
}


CUTS: dict[str, Side] = {"cut clients": "clients", "cut the database": "database"}


def broken_network(name: str) -> Callable[[], Ails | Cuts]:
    """How to make the fault of that name."""
    if name in CUTS:
        return lambda: Cuts(name, CUTS[name])
    return lambda: Ails(name, *AILMENTS[name])
