"""Layouts of a World: how many brokers, and what stands around them.

To add one, name in `features` the arguments of World that it turns on.
"""

from pathlib import Path

import msgspec

from tests.faults.disk import can_mount
from tests.faults.world import World
from tests.fixtures.citus import PROGRAMS

RUNS_EACH = 4  # one after the other, before the next layout's turn
FEATURES = ("external", "disk", "clocks", "versions", "guarded", "citus")  # arguments of World


class Layout(msgspec.Struct, frozen=True):
    name: str
    brokers: int = 1
    features: tuple[str, ...] = ()

    def world(self, directory: Path, *, seed: int) -> World:
        """Without the features that cannot be had here."""
        features = {name: is_possible(name) for name in self.features}
        return World(directory, brokers=self.brokers, seed=seed, **features)


def is_possible(feature: str) -> bool:
    asked = {"disk": can_mount, "citus": lambda: bool(PROGRAMS)}
    return asked.get(feature, lambda: True)()


ON_CITUS = Layout("two brokers on Citus", 2, ("citus",))
LAYOUTS = (
    Layout("a broker that embeds PostgreSQL"),
    Layout("two brokers behind proxies", 2, ("external",)),
    Layout("two brokers", 2),
    Layout("a broker behind proxies", 1, ("external",)),
    Layout("a machine of its own", 1, ("disk", "clocks")),
    Layout("two versions", 2, ("versions",)),
    Layout("a guarded broker", 1, ("guarded",)),
    *([ON_CITUS] if is_possible("citus") else []),  # without it, it would be two brokers once more
)


def layout_of(seed: int) -> Layout:
    return LAYOUTS[seed // RUNS_EACH % len(LAYOUTS)]


def fixed_layout(brokers: int | None, features: list[str]) -> Layout:
    """One of the caller's choice."""
    count = brokers or 1
    return Layout(" ".join(["brokers:", str(count), *features]), count, tuple(features))
