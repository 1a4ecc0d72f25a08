"""What a page may cost.  A bound is lowered once its page is cheaper, and never raised."""

from typing import NamedTuple


class Budget(NamedTuple):
    """`calls`: of the API, at the most.  `statements`: of the calls, with lists that are longer than a page."""

    calls: int
    statements: int


_USUAL = Budget(4, 12)
_BUDGETS = {
    "projects/{project}": Budget(9, 18),
    "projects/{project}/search": Budget(2, 13),
    "projects/{project}/messages/{message}": Budget(3, 15),
    "projects/{project}/topics/{topic}/messages/{message}": Budget(3, 14),
    "projects/{project}/topics/{topic}": Budget(7, 21),
    "projects/{project}/subscriptions/{subscription}": Budget(9, 31),
}


def budget_of(path: str) -> Budget:
    """Return the budget of the page of a route."""
    return _BUDGETS.get(path, _USUAL)
