"""Open tails and exports of a process are shared by project (F3, M1)."""

from contextlib import suppress

from broker.core.process.tails import MAX_TAILS, MAX_TAILS_OF_PROJECT, Tail, Tails
from broker.model.errors import ResourceExhausted


def opened(tails: Tails, project: str) -> list[Tail]:
    """As many as a project gets."""
    found: list[Tail] = []
    with suppress(ResourceExhausted):
        while len(found) <= MAX_TAILS:
            found.append(tails.open(project, ()))
    return found


def test_one_project_gets_its_bound_and_many_leave_some_to_whoever_comes() -> None:
    tails = Tails()
    each = [opened(tails, f"projects/p{number}") for number in range(6)]
    assert [len(found) for found in each[:4]] == [MAX_TAILS_OF_PROJECT] * 4
    assert all(each[4:])
    assert sum(map(len, each)) <= MAX_TAILS
    for found in each:
        for tail in found:
            tails.close(tail)
    assert len(opened(tails, "projects/q")) == MAX_TAILS_OF_PROJECT
