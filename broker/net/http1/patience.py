"""Time limits of peers: one check every few seconds, instead of timers for each request."""

from dataclasses import dataclass

from broker.net.http1.reader import BODY, HEAD, IDLE, Refusal


@dataclass(frozen=True, slots=True)
class Pace:
    """The time limits for a peer, in seconds."""

    check: float = 10.0  # a head, or so many bytes of a body, may take from one check to the next but one
    body_bytes: int = 10_240  # from one check to the next: 1 KB a second
    answer: float = 120.0  # for 13 MB at most: slower than a megabit a second is too slow
    linger: float = 5.0  # for a peer that is still sending to read the refusal


class Patience:
    """Compares what has come of a peer with what had at the last check."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._seen = (0, IDLE, 0)
        self._idle_checks = 0

    def has_run_out(
        self, *, number: int, phase: int, received: int, held_up: bool, answering: bool, keep_alive: float
    ) -> bool:
        """Whether the connection is to be closed because it was idle for long.  Raises Refusal: a peer is slow.

        `number` of requests that have begun, `phase` of the newest, `received` bytes of bodies; `held_up`: we have
        not read all that came; `answering`: a request waits for its answer; `keep_alive`: how many seconds an idle
        connection is kept.
        """
        pace = self._pace
        (number_then, phase_then, received_then), self._seen = self._seen, (number, phase, received)
        if number != number_then or held_up or (answering and phase != BODY):
            self._idle_checks = 0
        elif phase == BODY:
            if phase_then == BODY and received - received_then < pace.body_bytes:
                rate = pace.body_bytes / pace.check
                raise Refusal(408, f"The body of the request came slower than {rate:.0f} bytes a second.")
        elif phase == HEAD:
            if phase_then == HEAD:
                raise Refusal(408, f"The head of the request took longer than {pace.check:.0f} seconds.")
        else:
            self._idle_checks += 1
            return self._idle_checks * pace.check >= keep_alive
        return False
