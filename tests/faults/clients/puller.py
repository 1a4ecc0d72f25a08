"""A puller over REST: pulls, and settles what it gets before it pulls again."""

import asyncio
import base64
import random
from collections.abc import Sequence
from contextlib import nullcontext

from tests.faults.clients.gate import Gate
from tests.faults.clients.lease import Handling, now
from tests.faults.clients.rest import Json, RestCaller
from tests.faults.history import Delivery, History, Receive, Settle, Subscription

_PAUSE_SECONDS = 0.1  # after an empty answer


class Puller:
    """`gate`: it pauses where the operator wants quiet."""

    def __init__(
        self,
        name: str,
        subscription: Subscription,
        caller: RestCaller,
        history: History,
        dice: random.Random,
        gate: Gate | None = None,
    ) -> None:
        self._name, self._subscription = name, subscription
        self._caller, self._history, self._dice, self._gate = caller, history, dice, gate
        self.handling = Handling(dice, learns=subscription.redriven)
        self._stopping = False

    def stop(self) -> None:
        """After what it has in hand."""
        self._stopping = True

    async def run(self) -> None:
        while not self._stopping:
            async with self._gate.busy() if self._gate else nullcontext():
                received = await self._pull()
            if not received:
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _pull(self) -> bool:
        body = {"maxMessages": self._dice.choice((1, 3, 10, 50)), "returnImmediately": self._dice.random() < 0.5}
        began = now()
        answer = await self._caller.call("POST", f"subscriptions/{self._subscription.name}:pull", body)
        deliveries = [delivery(item) for item in answer.body.get("receivedMessages", ())]
        if answer.outcome == "ok" and not deliveries:
            return False
        self._history.add(
            Receive(
                who=self._name,
                began=began,
                ended=now(),
                outcome=answer.outcome,
                subscription=self._subscription.name,
                deliveries=deliveries,
            )
        )
        if deliveries:
            await self.handling.handle(deliveries, self._settle)
        return bool(deliveries)

    async def _settle(self, ack_ids: Sequence[str], seconds: float | None) -> Settle:
        return await settle(self._name, self._subscription, self._caller, self._history, ack_ids, seconds)


def delivery(item: Json) -> Delivery:
    """From a received message, or the body of a push."""
    message = item["message"]
    return Delivery(
        int(message["messageId"]),
        base64.b64decode(message.get("data", "")).decode(),
        item.get("ackId", ""),
        message.get("orderingKey", ""),
        item.get("deliveryAttempt"),
        message.get("attributes", {}),
    )


async def settle(
    who: str,
    subscription: Subscription,
    caller: RestCaller,
    history: History,
    ack_ids: Sequence[str],
    seconds: float | None,
) -> Settle:
    """Ack messages (`seconds` is None), or give them a new deadline; note it."""
    body: Json = {"ackIds": list(ack_ids)}
    if seconds is not None:
        body["ackDeadlineSeconds"] = seconds
    verb = "acknowledge" if seconds is None else "modifyAckDeadline"
    began = now()
    answer = await caller.call("POST", f"subscriptions/{subscription.name}:{verb}", body)
    outcome, refused = answer.outcome, {}
    details = answer.body.get("error", {}).get("details", [])
    if subscription.exactly_once and details and details[0].get("reason") == "EXACTLY_ONCE_ACKID_FAILURE":
        outcome, refused = "ok", details[0]["metadata"]  # of the others it was done
    elif outcome == "failed" and not caller.is_denied(answer):
        caller.unforeseen.append(f"{verb}: {answer.body}")
    settled = Settle(
        who=who,
        began=began,
        ended=now(),
        outcome=outcome,
        subscription=subscription.name,
        ack_ids=list(ack_ids),
        seconds=seconds,
        refused=refused,
    )
    history.add(settled)
    return settled
