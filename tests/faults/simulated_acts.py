"""What an operator does to the simulated broker: redrives, discards, purges, copies.  Each happens at a moment."""

from collections import Counter
from typing import TYPE_CHECKING

from tests.faults.checks.view import DEAD_LETTER_ID, DEAD_LETTER_SOURCE
from tests.faults.history import Copy, Discard, Purge, Redrive, Subscription
from tests.faults.simulated_state import Message

if TYPE_CHECKING:
    from tests.faults.simulator import Simulator

MAX_ATTEMPTS = 5
PILE = "pile"
_BACK = {"exactly_once": True, "max_attempts": MAX_ATTEMPTS, "dead_letter_topic": PILE, "redriven": True}
SUBSCRIPTIONS = (
    Subscription("redriven", "topic", journal="ALL", **_BACK),  # type: ignore[arg-type]
    Subscription("ordered-redriven", "topic", ordered=True, **_BACK),  # type: ignore[arg-type]
    Subscription(PILE, PILE),
    Subscription("purged", "topic"),
    Subscription("copied", "copies", ordered=True, wanted={"kind": "rare"}, copies="topic"),
)
_ENDED_EARLY = 0.15  # the share of long work


class Acts:
    def __init__(self, simulator: "Simulator") -> None:
        self._broker = simulator
        self._dice = simulator.dice
        self._count = 0
        self._copies = 0
        self._discarded: set[tuple[str, int]] = set()

    def act(self) -> None:
        """Any."""
        self._dice.choices((self._redrive, self._discard, self._purge, self._copy), (4, 1, 1, 1))[0]()

    def redrive_all(self) -> None:
        for name in ("redriven", "ordered-redriven"):
            self._redrive(name, whole=True)

    def _dead_letters(self, name: str) -> list[Message]:
        dead_letters = self._broker.states[PILE].messages
        return [dead_letter for dead_letter in dead_letters if dead_letter.attributes[DEAD_LETTER_SOURCE] == name]

    def _redrive(self, name: str = "", *, whole: bool = False) -> None:
        name = name or self._dice.choice(("redriven", "ordered-redriven"))
        if not whole and not self._broker.answer()[1]:
            return  # it is not found afterwards
        times = self._broker.times()
        by_id = {message.id: message for message in self._broker.states[name].messages}
        dead_letters, counts = self._dead_letters(name), Counter[str]()
        early = not whole and self._dice.random() < _ENDED_EARLY
        for dead_letter in dead_letters[: len(dead_letters) // 2] if early else dead_letters:
            message = by_id[int(dead_letter.attributes[DEAD_LETTER_ID])]
            if (name, message.id) not in self._discarded:
                self._bring_back(message, dead_letter)
                counts["redriven"] += 1
        self._count += 1
        self._broker.history.add(
            Redrive(
                who="mender",
                **times,
                subscription=name,
                name=f"operation-{self._count}",
                state="CANCELLED" if early else "SUCCEEDED",
                done=counts.total(),
                counts=counts,
            )
        )
        self._broker.now = times["ended"]  # which is when others look again

    def _bring_back(self, message: Message, dead_letter: Message) -> None:
        self._broker.states[PILE].messages.remove(dead_letter)
        message.acked, message.attempts = False, 0
        message.report(self._broker.now, "REDRIVEN")

    def _discard(self) -> None:
        name = self._dice.choice(("redriven", "ordered-redriven"))
        dead_letters = self._dead_letters(name)
        if not dead_letters:
            return
        outcome, happens = self._broker.answer()
        dead_letter = self._dice.choice(dead_letters)
        message_id = int(dead_letter.attributes[DEAD_LETTER_ID])
        if happens:
            dead_letter.acked = True
            self._discarded.add((name, message_id))
        outcomes = {str(message_id): "discarded"} if outcome == "ok" else {}
        self._broker.history.add(
            Discard(
                who="mender",
                **self._broker.times(),
                outcome=outcome,
                subscription=name,
                ids=[message_id],
                outcomes=outcomes,
            )
        )

    def _purge(self) -> None:
        outcome, happens = self._broker.answer()
        times = self._broker.times()
        if happens:
            state = self._broker.states["purged"]
            for message in state.messages:
                message.acked = True
            state.leases.clear()
        self._broker.history.add(Purge(who="mender", **times, outcome=outcome, subscription="purged"))
        self._broker.now = times["ended"]

    def _copy(self) -> None:
        _, happens = self._broker.answer()
        if not happens or self._copies > 2:
            return
        self._copies += 1
        times = self._broker.times()
        messages = list(self._broker.states["rare"].messages)
        early = self._dice.random() < _ENDED_EARLY
        messages = messages[: len(messages) // 2] if early else messages
        for message in messages:
            self._broker.store("copies", [message.text], message.key, message.attributes)
        self._count += 1
        self._broker.history.add(
            Copy(
                who="mender",
                **times,
                topic="topic",
                target="copies",
                name=f"operation-{self._count}",
                state="CANCELLED" if early else "SUCCEEDED",
                done=len(messages),
                counts={"copied": len(messages)} if messages else {},
            )
        )
        self._broker.now = times["ended"]
