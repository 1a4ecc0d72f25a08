"""`broker auth token`: an access token, for curl and the like."""

from broker.client.calling import Session, calling
from broker.client.credentials import KeyFile
from broker.client.google_credentials import VARIABLE
from broker.client.output import Shown
from broker.client.stop import Misuse

_GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"


@calling("token", "broker auth token --credentials admin.json")
def token(session: Session) -> Shown:
    """Print an access token for a key file; it holds for an hour."""
    key = session.api.credentials
    if not isinstance(key, KeyFile):
        raise Misuse(f"a token is made from a key: give --credentials FILE, or set {VARIABLE}")
    form = {"grant_type": _GRANT, "assertion": key.signed(key.token_uri)}  # RFC 7523
    answer = session.api.send_form("/token", form)
    return Shown(data=answer, script=answer["access_token"])


COMMANDS = token
