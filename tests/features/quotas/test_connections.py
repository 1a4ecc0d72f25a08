"""How many connections projects have (E4): all processes together, each by its part until the next heartbeat."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.features.quotas import connections
from broker.features.quotas.connections import Connection, Connections
from broker.model.errors import QuotaExceeded

_P = "projects/p"


class Processes:
    """Some that hear of each other when `heartbeat` says so."""

    def __init__(self, number: int, limit: int) -> None:
        self.all = [Connections({_P: limit}.get) for _ in range(number)]
        self.reported: list[dict[str, int]] = [{} for _ in self.all]

    def heartbeat(self, *which: int) -> None:
        for one in which or range(len(self.all)):
            self.reported[one] = self.all[one].report()
            self.all[one].heard(
                self.reported[one], [reported for other, reported in enumerate(self.reported) if other != one]
            )

    def begin(self, which: int, project: str = _P) -> asyncio.Task[Connection]:
        return asyncio.create_task(self.all[which].open(project))

    def open(self) -> int:
        return sum(process._open[_P] for process in self.all)


async def _settle() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_a_process_that_is_alone_has_all_and_refuses_what_is_more() -> None:
    processes = Processes(1, limit=3)
    held = [await processes.all[0].open(_P) for _ in range(3)]
    with pytest.raises(
        QuotaExceeded, match=r"connections of project p is at 3 of 3 \(connections\); close streams"
    ):
        await processes.all[0].open(_P)
    await processes.all[0].open("projects/free")  # nobody else's matter
    for connection in (held[0], held[0], held[1]):  # one of them twice
        connection.close()
    assert processes.all[0].count(_P) == 1
    held += [await processes.all[0].open(_P) for _ in range(2)]
    with pytest.raises(QuotaExceeded):
        await processes.all[0].open(_P)


async def test_several_processes_have_parts_and_who_comes_for_more_waits_for_news() -> None:
    processes = Processes(2, limit=8)
    processes.heartbeat()
    opening = [processes.begin(0) for _ in range(8)]
    for expected in (4, 6, 7, 8):
        await _settle()
        assert processes.open() == expected
        processes.heartbeat()
    await asyncio.gather(*opening)
    with pytest.raises(QuotaExceeded):
        await processes.all[1].open(_P)
    (await opening[0]).close()
    processes.heartbeat()
    assert processes.all[1].count(_P) == 7
    await processes.all[1].open(_P)


async def test_nothing_is_refused_for_want_of_news(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the database is away there are no heartbeats, and a stream waits for it all the same."""
    monkeypatch.setattr(connections, "_REPORT_SECONDS", 0)
    processes = Processes(2, limit=2)
    processes.heartbeat()
    for _ in range(2):
        await processes.all[0].open(_P)


async def test_what_a_process_that_is_gone_had_is_free_again() -> None:
    processes = Processes(2, limit=2)
    processes.heartbeat()
    await processes.all[1].open(_P)
    processes.heartbeat(1, 0)
    await processes.all[0].open(_P)
    with pytest.raises(QuotaExceeded):
        await processes.all[0].open(_P)
    processes.all[0].heard(processes.all[0].report(), [])
    await processes.all[0].open(_P)


async def test_what_was_open_before_a_limit_counts() -> None:
    limits: dict[str, int] = {}
    one = Connections(limits.get)
    await one.open(_P)
    assert one.report() == {}
    limits[_P] = 1
    assert one.report() == {_P: 1}
    with pytest.raises(QuotaExceeded):
        await one.open(_P)


@given(
    number=st.integers(1, 5),
    limit=st.integers(0, 40),
    steps=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 30), st.booleans()), max_size=12),
)
def test_a_burst_at_all_processes_does_not_come_to_twice_the_limit(
    number: int, limit: int, steps: list[tuple[int, int, bool]]
) -> None:
    """Whoever is heard of late.  (What each opens in one second the others hear of in the next: half as much.)"""

    async def run() -> None:
        processes = Processes(number, limit)
        processes.heartbeat()
        for which, burst, beats in steps:
            tasks = [processes.begin(which % number) for _ in range(burst)]
            await _settle()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if beats:
                processes.heartbeat(which % number)
        assert processes.open() <= limit * 2 + number

    asyncio.run(run())
