"""`broker whoami`."""

from broker.client.calling import Session, calling
from broker.client.output import Shown


@calling("whoami", "broker whoami")
def whoami(session: Session) -> Shown:
    """Show who the caller is to the server, by which credential, and until when; needs this broker."""
    found = session.api.call("GET", "whoami")
    fields = {
        "principal": found.get("principal", "anybody: the server does not ask who calls"),
        "credential": found["credential"]["kind"],
        "id": found["credential"].get("id", ""),
        "expires": found.get("expireTime", "never" if "principal" in found else ""),
        "members": ", ".join(found.get("members", [])),
    }
    return Shown(data=found, fields={name: text for name, text in fields.items() if text})


COMMANDS = whoami
