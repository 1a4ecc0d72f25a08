"""What StreamingPull promises of who may be given what, in plain Python, by what was published and settled.

A *holder* is a stream or a puller: whoever was handed a message has it until it settles it.  What was sent to the
broker counts from the moment of its sending: no settlement can have counted before, so nothing that the broker was
free to do is taken for a fault.

Of an ordering key a message may be handed over once all earlier ones are acked, or to whom has the earlier ones;
and as long as nobody has later ones.  A nack takes back all later ones of the key too, acks or not (A6).  Those
that were on their way to the holder just then are strays: worth nothing, they will come again.
"""

from dataclasses import dataclass, field


@dataclass(eq=False)
class Message:
    text: str
    key: str
    number: int  # of its key
    acked: bool = False
    holder: str | None = None
    ack_id: str = ""


@dataclass
class Key:
    messages: list[Message] = field(default_factory=list)
    # Of holders that nacked: from which number on something may have been on its way to them.
    strays: dict[str, int] = field(default_factory=dict)


class Reference:
    """Messages of one subscription; `ordered`: by key, if they have one."""

    def __init__(self, *, ordered: bool) -> None:
        self._ordered = ordered
        self._keys: dict[str, Key] = {}
        self.messages: dict[str, Message] = {}  # by message id
        self._by_ack_id: dict[str, Message] = {}

    def published(self, message_id: str, text: str, key: str = "") -> None:
        of_key = self._keys.setdefault(key, Key())
        message = Message(text, key, len(of_key.messages))
        of_key.messages.append(message)
        self.messages[message_id] = message

    # --- what the broker does ----------------------------------------------------------------------------

    def delivered(self, holder: str, message_id: str, ack_id: str, text: str) -> bool:
        """Whether it counts; False: a stray.  Raises AssertionError for what may not be."""
        message = self.messages.get(message_id)
        assert message is not None, f"{text} was not published"
        assert message.text == text
        assert ack_id not in self._by_ack_id, f"{text} came twice under one ack id"
        fault = self._fault(holder, message)
        if self._ordered and message.key:
            strays = self._keys[message.key].strays
            if fault and message.number > strays.get(holder, message.number):
                return False
            strays.pop(holder, None)
        assert not fault, f"{message.text} came to {holder}, but {fault}"
        message.holder, message.ack_id = holder, ack_id
        self._by_ack_id[ack_id] = message
        return True

    def _fault(self, holder: str, message: Message) -> str | None:
        if message.acked:
            return "was acked"
        if message.holder is not None:
            return f"{message.holder} has it"
        if self._ordered and message.key:
            others = self._keys[message.key].messages
            for earlier in others[: message.number]:
                if not earlier.acked and earlier.holder != holder:
                    return f"{earlier.text} is before it and neither acked nor there"
            for later in others[message.number + 1 :]:
                if later.holder is not None:
                    return f"{later.holder} has {later.text} already"
        return None

    # --- what holders do ---------------------------------------------------------------------------------

    def has(self, ack_id: str) -> bool:
        """Whether the message is still its receiver's under this ack id."""
        message = self._by_ack_id.get(ack_id)
        return message is not None and message.ack_id == ack_id and message.holder is not None

    def held_by(self, holder: str) -> list[Message]:
        return [message for message in self.messages.values() if message.holder == holder]

    def holders(self) -> set[str]:
        return {message.holder for message in self.messages.values() if message.holder is not None}

    def still_settled(self, ack_ids: list[str]) -> tuple[list[str], list[str]]:
        """Which of these were acked and which nacked, of the messages that were not handed over again since."""
        settled = [self._by_ack_id[a] for a in ack_ids]
        last = [m for a, m in zip(ack_ids, settled, strict=True) if m.ack_id == a and m.holder is None]
        return [m.ack_id for m in last if m.acked], [m.ack_id for m in last if not m.acked]

    def acked(self, ack_ids: list[str]) -> None:
        for ack_id in ack_ids:
            if self.has(ack_id):
                message = self._by_ack_id[ack_id]
                message.acked, message.holder = True, None

    def nacked(self, ack_ids: list[str]) -> None:
        for ack_id in ack_ids:
            if self.has(ack_id):
                message = self._by_ack_id[ack_id]
                holder, message.holder = message.holder, None
                if holder is not None and self._ordered and message.key:
                    self._take_back(holder, message)

    def _take_back(self, holder: str, message: Message) -> None:
        key = self._keys[message.key]
        for later in key.messages[message.number :]:
            later.holder, later.acked = None, False
        key.strays[holder] = min(message.number, key.strays.get(holder, message.number))

    # --- in the end --------------------------------------------------------------------------------------

    def all_acked(self) -> bool:
        return all(message.acked for message in self.messages.values())

    def unacked(self) -> list[str]:
        return [f"{m.text} ({m.holder})" for m in self.messages.values() if not m.acked]
