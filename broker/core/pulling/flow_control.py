"""The flow control of a stream: how much it may have outstanding (A7)."""

from dataclasses import dataclass

from broker.model.errors import InvalidArgument

UNCOUNTED = 1_000_000  # messages; such a high limit is the same as none, and counting costs memory
MAX_CLIENT_ID_LENGTH = 1_024  # characters; Google's clients send a UUID.  It is kept for as long as its keys are


@dataclass(frozen=True, slots=True)
class FlowControl:
    """Messages, and bytes of them, that may be outstanding.  0: any number.

    Bytes are counted as they are for a pull's response (delivery.MESSAGE_OVERHEAD); the message that reaches the
    limit is still handed out, however large it is.
    """

    max_messages: int = 0
    max_bytes: int = 0

    @property
    def is_limited(self) -> bool:
        return 0 < self.max_messages < UNCOUNTED or self.max_bytes > 0

    def available(self, messages: int, size: int) -> int | None:
        """Returns how many more messages may be delivered to a client that has so many, of so many bytes.

        None: any number.
        """
        if 0 < self.max_bytes <= size:
            return 0
        return max(self.max_messages - messages, 0) if 0 < self.max_messages < UNCOUNTED else None

    def bytes_left(self, size: int) -> int | None:
        """Returns how many more bytes may be delivered to a client that has `size` bytes; None: any number.

        The message that reaches the limit may be larger.
        """
        return max(self.max_bytes - size, 0) if self.max_bytes > 0 else None


def check_client_id(client_id: str) -> None:
    """Raises InvalidArgument for the id of a stream's client that is too long."""
    if len(client_id) > MAX_CLIENT_ID_LENGTH:
        raise InvalidArgument(f"client_id has {len(client_id)} characters, the maximum is {MAX_CLIENT_ID_LENGTH}.")
