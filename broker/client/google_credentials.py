"""The file that GOOGLE_APPLICATION_CREDENTIALS names: a key file that a broker has made, or a credential of
Google's.

Google's own tools set the variable too, so a credential that was not made by a broker is never sent to a server.
"""

import os
from dataclasses import dataclass
from typing import Any

from broker.client.credentials import KeyFile, is_key_file
from broker.client.files import MAX_KEY_BYTES, read_bytes
from broker.client.json_text import NotJson, parse_json
from broker.client.stop import Misuse

VARIABLE = "GOOGLE_APPLICATION_CREDENTIALS"  # as Google's libraries have it


@dataclass(frozen=True, slots=True)
class GoogleCredentials:
    """`key` is a broker's key file; `foreign` describes any other credential.  At most one is set."""

    key: KeyFile | None = None
    foreign: str = ""


def read_google_credentials(path: str, *, needed: bool) -> GoogleCredentials:
    """Reads the credentials that the variable names; "": it is not set.

    Raises Misuse for what is no credential at all, if it is `needed`: there is no other credential.
    """
    if not path:
        return GoogleCredentials()
    try:
        fields = parse_json(read_bytes(os.path.expanduser(path), VARIABLE, most=MAX_KEY_BYTES))
        problem = "" if isinstance(fields, dict) else f"{VARIABLE} {path} is no credential, which is a JSON object"
    except Misuse as error:
        problem = str(error)
    except NotJson as error:
        problem = f"{VARIABLE} {path} is not JSON: {error}"
    if problem and needed:
        raise Misuse(problem)
    return GoogleCredentials() if problem else _classified(fields)


def _classified(fields: dict[str, Any]) -> GoogleCredentials:
    if not is_key_file(fields):
        return GoogleCredentials(foreign=f"a credential of type {fields.get('type') or 'unknown'}")
    key = KeyFile(fields, VARIABLE)
    return GoogleCredentials(key) if key.server else GoogleCredentials(foreign=f"a key of {key.token_uri}")
