"""An application whose tables are in the broker's PostgreSQL: it publishes and acks in its own transactions.

Some of these it rolls back, and some end with their session.  What it was handed stays its own for longer than a
run, so that of each ack can be told at the end whether it counted.
"""

import asyncio
import contextlib
import random
from collections.abc import Sequence
from typing import Any

import psycopg
from sqlalchemy import make_url

from broker.db.database_url import DEFAULT_SCHEMA
from broker.features.outbox.application_functions import CannotGrant, grant, make_role
from tests.faults.clients.actor import Actor
from tests.faults.clients.lease import now
from tests.faults.clients.repeater import came
from tests.faults.clients.rest import Json, RestCaller
from tests.faults.clients.topology import Plan
from tests.faults.history import History, Relayed, Transaction
from tests.faults.operation import Came, Outcome

_ROLE = "faults-shop"
_TOPIC, _WORK, _ALL = "load-shop", "shop-work", "shop-all"
_ROLLED_BACK, _CUT = 0.25, 0.1  # shares of transactions; of these, by the end of their session
_KEYS = ("", "a", "b")
_LONGEST_DEADLINE, _END_SECONDS = 600, 60.0

Session = psycopg.AsyncConnection[Any]


class Shop(Actor):
    rate = 4.0  # transactions a second

    def __init__(
        self, caller: RestCaller, history: History, dice: random.Random, plans: Sequence[Plan], *, pause: float
    ) -> None:
        super().__init__(caller, history, dice, plans, pause=pause)
        self._on = self._on and bool(caller.superuser_url)
        self._session: Session | None = None
        self._received: dict[int, str] = {}  # ack ids of messages, by their ids
        self._untried: list[int] = []

    async def _prepare(self) -> None:
        path = f"topics/{_TOPIC}"
        await self._caller.do("PUT", path, {}, fine=[409])
        for name, seconds in ((_WORK, _LONGEST_DEADLINE), (_ALL, 60)):
            body = {"topic": f"{self._caller.project}/{path}", "ackDeadlineSeconds": seconds}
            await self._caller.do("PUT", f"subscriptions/{name}", body, fine=[409])
        while not await asyncio.to_thread(self._is_granted):  # noqa: ASYNC110  # another process's doing
            await asyncio.sleep(0.2)

    async def _act(self) -> None:
        await self._receive()
        await self._transact()

    async def _leave(self) -> None:
        await self._close()

    def _is_granted(self) -> bool:
        url = self._caller.superuser_url
        with contextlib.suppress(CannotGrant, psycopg.Error):
            make_role(url, role=_ROLE)
            grant(url, schema=DEFAULT_SCHEMA, role=_ROLE, project=self._caller.project)
            return True
        return False

    async def _receive(self) -> None:
        """What it will ack in a transaction, perhaps."""
        body = {"maxMessages": 5, "returnImmediately": True}
        answer = await self._caller.call("POST", f"subscriptions/{_WORK}:pull", body)
        for each in answer.body.get("receivedMessages", ()):
            id_ = int(each["message"]["messageId"])
            if id_ not in self._received:
                self._untried.append(id_)
            self._received[id_] = each["ackId"]

    async def _transact(self) -> None:
        names = [f"sold-{next(self._count)}" for _ in range(self._dice.choice((1, 2, 5)))]
        key = self._dice.choice(_KEYS)
        self._dice.shuffle(self._untried)
        acked = [self._untried.pop() for _ in range(min(len(self._untried), self._dice.choice((0, 1, 3))))]
        began = now()
        outcome = await self._outcome(names, key, [self._received[id_] for id_ in acked])
        self._history.add(
            Transaction(who="shop", began=began, ended=now(), outcome=outcome, names=names, key=key, acked=acked)
        )

    async def _outcome(self, names: Sequence[str], key: str, ack_ids: Sequence[str]) -> Outcome:
        """Unknown: the session broke while it committed."""
        outcome: Outcome = "failed"
        try:
            session = await self._connected()
            topic = f"{self._caller.project}/topics/{_TOPIC}"
            for name in names:
                row = [topic, name.encode(), key or None]
                await session.execute("SELECT pubsub.publish(%s, %s, NULL, %s)", row)
            if ack_ids:
                subscription = f"{self._caller.project}/subscriptions/{_WORK}"
                await session.execute("SELECT pubsub.acknowledge(%s, %s)", [subscription, list(ack_ids)])
            if self._dice.random() < _ROLLED_BACK:
                await (self._close() if self._dice.random() < _CUT else session.rollback())
                return outcome
            outcome = "unknown"
            await session.commit()
        except (psycopg.Error, OSError):
            await self._close()
            await asyncio.sleep(0.1)
            return outcome
        return "ok"

    async def _connected(self) -> Session:
        if self._session is None:
            url = make_url(self._caller.superuser_url).set(username=_ROLE).render_as_string(False)
            self._session = await psycopg.AsyncConnection.connect(url, connect_timeout=5)
        return self._session

    async def _close(self) -> None:
        if self._session is not None:
            with contextlib.suppress(psycopg.Error, OSError):
                await self._session.close()
        self._session = None

    # --- the end -----------------------------------------------------------------------------------------------

    async def _end(self) -> None:
        """All that was committed is relayed; then whatever it was handed comes again, unless it was acked."""
        began = now()
        while left := await self._in_outbox():
            assert now() < began + _END_SECONDS, left
            await asyncio.sleep(0.1)
        ack_ids = list(self._received.values())
        for start in range(0, len(ack_ids), 1000):
            body = {"ackIds": ack_ids[start : start + 1000], "ackDeadlineSeconds": 0}
            await self._caller.do("POST", f"subscriptions/{_WORK}:modifyAckDeadline", body)
        again = [each.id for each in await self._collect(_WORK)]
        found = await self._collect(_ALL)
        self._history.add(
            Relayed(who="shop", began=began, ended=now(), came=found, nacked=list(self._received), again=again)
        )
        await self._delete([_WORK, _ALL], [_TOPIC])

    async def _in_outbox(self) -> int:
        async with await psycopg.AsyncConnection.connect(self._caller.superuser_url) as session:
            like = f"{self._caller.project}/%"
            cursor = await session.execute(
                f"SELECT count(*)::int FROM {DEFAULT_SCHEMA}.outbox WHERE name LIKE %s", [like]
            )
            [count] = await cursor.fetchone() or (0,)
            return int(count)

    async def _collect(self, name: str) -> list[Came]:
        """All that comes until nothing more does, acked."""
        found: list[Came] = []
        path = f"subscriptions/{name}"
        while True:
            body: Json = {"maxMessages": 1000, "returnImmediately": True}
            received = (await self._caller.do("POST", f"{path}:pull", body)).get("receivedMessages", [])
            if not received:
                return found
            found += [came(each["message"]) for each in received]
            await self._caller.do("POST", f"{path}:acknowledge", {"ackIds": [each["ackId"] for each in received]})
