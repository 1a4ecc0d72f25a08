"""The address of the caller, as it is logged."""


def host_of(peer: object) -> str:
    """The address of a socket's peer without its port; "" if it is not known."""
    return str(peer[0]) if isinstance(peer, tuple) and peer else ""
