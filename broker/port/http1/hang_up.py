"""That a peer has closed its side, while what it sent before is still in the socket.

A transport that does not read is told nothing: the end comes behind what it has not read.
"""

import asyncio
import select

# The peer sends no more (Linux).  Elsewhere poll tells only of a connection that is closed on both sides.
_SENDS_NO_MORE = getattr(select, "POLLRDHUP", 0)


def has_hung_up(transport: asyncio.Transport) -> bool:
    """Whether nothing more will come from the peer than what is here.  A system call that does not wait."""
    sock = transport.get_extra_info("socket")
    if sock is None or sock.fileno() < 0:
        return False
    poll = select.poll()
    poll.register(sock.fileno(), _SENDS_NO_MORE)
    return bool(poll.poll(0))
