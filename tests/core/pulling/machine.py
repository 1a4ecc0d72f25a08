"""A publisher, two streams and a puller on one subscription, doing what they like; the reference looks on.

What comes while a step is under way is looked at after it, in the order it came.  A step that takes something
away from a stream (a nack, an end) waits first until nothing is on its way to it, as far as one can tell: what is
lost on the way comes again, but only at its deadline.
"""

import asyncio
import uuid
from collections.abc import Coroutine
from typing import Any, ClassVar

import httpx
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.core.pulling.reference import Reference
from tests.core.pulling.stream import Received, Stream, Streams
from tests.fixtures.broker import NO_TLS, Rest, message, text

WINDOWS = (3, 8)  # of the two streams
CLIENT_IDS = ("worker", None)  # the first one's comes again with it
PULLER = "puller"
CALM_SECONDS = 0.02
DEADLINE = 15  # seconds; longer than an example takes
PATIENCE = 35.0  # seconds; what was lost on the way to a stream needs a deadline

OUTCOMES = st.lists(st.sampled_from(["ack", "ack", "nack", "keep"]), min_size=1, max_size=6)


class Parties:
    """The subscription of one example, and all that is known of it; runs on a loop of its own."""

    def __init__(self, runner: asyncio.Runner, url: str, *, ordered: bool) -> None:
        self._runner = runner
        self._ordered = ordered
        self.reference = Reference(ordered=ordered)
        self.client = httpx.AsyncClient(base_url=url, timeout=60, verify=NO_TLS)
        self.rest = Rest(self.client, f"projects/test-{uuid.uuid4().hex[:10]}")
        self.streams = Streams(url, self.rest)
        self.open: list[tuple[str, Stream]] = []  # with the name of the holder, "1.4" for the second one's fifth
        self.arrivals: list[tuple[str, Received]] = []
        self.said: dict[str, list[str]] = {}  # by holder: ack ids that it acked or nacked
        self._number = 0

    def run(self, act: Coroutine[Any, Any, Any]) -> Any:
        return self._runner.run(act)

    async def begin(self) -> None:
        await self.streams.subscribe(enableMessageOrdering=self._ordered)
        for index in range(len(WINDOWS)):
            self.open.append(await self.new_stream(index, 0))

    async def new_stream(self, index: int, generation: int) -> tuple[str, Stream]:
        name = f"{index}.{generation}"
        stream = await self.streams.open(
            stream_ack_deadline_seconds=DEADLINE,
            max_outstanding_messages=WINDOWS[index],
            client_id=CLIENT_IDS[index],
            on_messages=lambda came: self.arrivals.extend((name, each) for each in came),
        )
        return name, stream

    def check(self) -> None:
        """Let the reference see what came."""
        arrivals, self.arrivals = self.arrivals, []
        for name, came in arrivals:
            self.reference.delivered(name, came.message_id, came.ack_id, came.text)

    async def calm(self) -> None:
        while True:
            await asyncio.sleep(CALM_SECONDS)
            if not self.arrivals:
                return
            self.check()

    async def publish(self, key: str, count: int) -> None:
        texts = [f"{key}{self._number + n}" for n in range(count)]
        self._number += count
        ids = await self.rest.publish(*(message(each, orderingKey=key) for each in texts))
        for message_id, each in zip(ids, texts, strict=True):
            self.reference.published(message_id, each, key)

    async def pull(self, max_messages: int) -> None:
        came = await self.rest.pull(max_messages=max_messages)
        self.check()
        for each in came:
            body = each["message"]
            self.reference.delivered(PULLER, body["messageId"], each["ackId"], text(each))

    # --- settling ----------------------------------------------------------------------------------------

    async def settle(self, holder: str, outcomes: list[str], *, unary: bool) -> None:
        """Ack and nack of what the holder has, in its order, as the outcomes say in turn."""
        if "nack" in outcomes:
            await self.calm()
        held = sorted(self.reference.held_by(holder), key=lambda m: (m.key, m.number))
        chosen = {m.ack_id: outcomes[n % len(outcomes)] for n, m in enumerate(held)}
        acks = [ack_id for ack_id, outcome in chosen.items() if outcome == "ack"]
        self.reference.acked(acks)
        nacks = [a for a, outcome in chosen.items() if outcome == "nack"]
        self.reference.nacked(nacks)
        self.said.setdefault(holder, []).extend(acks + nacks)
        stream = dict(self.open).get(holder)
        if stream is None or unary:
            await self._settle_unary(acks, nacks)
        else:
            if acks:
                await stream.send(ack_ids=acks)
            if nacks:
                await stream.modify(nacks, 0)

    async def _settle_unary(self, acks: list[str], nacks: list[str]) -> None:
        if acks:
            await self.rest.acknowledge([{"ackId": ack_id} for ack_id in acks])
        if nacks:
            await self.rest.modify_ack_deadline([{"ackId": ack_id} for ack_id in nacks], 0)

    async def replace(self, index: int, *, politely: bool) -> None:
        """End a stream and open the next.  What the old one said last may not have been heard: it is said again."""
        await self.calm()
        name, stream = self.open[index]
        if politely:
            await stream.half_close()
            assert (await stream.ended()).code == "OK"
        else:
            await stream.close()
            _, other = self.open[1 - index]
            for _ in range(3):  # on the same connection: the broker has read the cancellation before, and acted
                await other.round_trip()
            await asyncio.sleep(CALM_SECONDS)
        self.check()
        said = self.said.pop(name, [])
        acks, nacks = self.reference.still_settled(said)
        await self._settle_unary(acks, nacks)
        self.open[index] = await self.new_stream(index, int(name.partition(".")[2]) + 1)

    # --- the end -----------------------------------------------------------------------------------------

    def check_windows(self) -> None:
        for index, (name, _) in enumerate(self.open):
            names = {name}
            if CLIENT_IDS[index]:  # what a stream of the same client left behind counts as well
                names = {f"{index}.{n}" for n in range(int(name.partition(".")[2]) + 1)}
            held = [m.text for each in names for m in self.reference.held_by(each)]
            assert len(held) <= WINDOWS[index], f"stream {name} has {held}"

    async def finish(self) -> None:
        """Ack all that comes, until everything is acked."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE
        while not self.reference.all_acked():
            assert loop.time() < deadline, f"these did not come: {self.reference.unacked()}"
            await self.pull(100)
            for holder in sorted(self.reference.holders()):
                await self.settle(holder, ["ack"], unary=False)
            await asyncio.sleep(0.005)
            self.check()
        while await self.streams.unacked():
            assert loop.time() < deadline, "an ack was not heard"
            await asyncio.sleep(0.01)
        await self.calm()
        assert await self.rest.pull() == []
        assert [stream.end for _, stream in self.open] == [None] * len(self.open)

    async def end(self) -> None:
        await self.streams.close()
        await self.rest.ok("DELETE", self.rest.subscription())
        await self.client.aclose()


class StreamingPull(RuleBasedStateMachine):
    """`runner` and `url` are set by the test."""

    runner: ClassVar[asyncio.Runner]
    url: ClassVar[str]
    ordered: ClassVar[bool]

    def __init__(self) -> None:
        super().__init__()
        self.parties = Parties(self.runner, self.url, ordered=self.ordered)
        self.parties.run(self.parties.begin())

    def _do(self, act: Coroutine[Any, Any, None]) -> None:
        self.parties.run(act)
        self.parties.run(asyncio.sleep(0.002))
        self.parties.check()

    @rule(key=st.sampled_from(["", "k", "j"]), count=st.integers(1, 6))
    def publish(self, key: str, count: int) -> None:
        self._do(self.parties.publish(key, count))

    @rule(max_messages=st.integers(1, 8))
    def pull(self, max_messages: int) -> None:
        self._do(self.parties.pull(max_messages))

    @rule(which=st.integers(0, 5), outcomes=OUTCOMES, unary=st.booleans())
    def settle(self, which: int, outcomes: list[str], unary: bool) -> None:
        if holders := sorted(self.parties.reference.holders()):
            self._do(self.parties.settle(holders[which % len(holders)], outcomes, unary=unary))

    @rule(index=st.integers(0, len(WINDOWS) - 1), politely=st.booleans())
    def replace(self, index: int, politely: bool) -> None:
        self._do(self.parties.replace(index, politely=politely))

    @rule()
    def wait(self) -> None:
        self._do(self.parties.calm())

    @invariant()
    def no_window_is_exceeded(self) -> None:
        self.parties.check_windows()

    def teardown(self) -> None:
        try:
            self.parties.run(self.parties.finish())
        finally:
            self.parties.run(self.parties.end())
