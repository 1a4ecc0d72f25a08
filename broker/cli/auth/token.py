"""`broker auth token`: an access token, for curl and the like."""

from broker.cli.auth.api import Api
from broker.cli.auth.calling import Shown, calling
from broker.cli.command_line import Group

_OWN = Group("auth")


@calling(_OWN, "token")
def token(api: Api) -> Shown:
    """Print an access token for a key file; it holds for an hour."""
    answer = api.access_token()
    return Shown(answer, line=answer["access_token"])


COMMANDS = token
