"""Authenticates a command: by a service account's key file, by an API key, or not at all."""

import os
import re
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import jwt

from broker.client.files import MAX_KEY_BYTES, read_bytes
from broker.client.json_text import NotJson, parse_json
from broker.client.stop import Misuse

AUDIENCE = "https://pubsub.googleapis.com/"  # which every broker takes, whatever address it is reached by
_LIFETIME_SECONDS = 300  # of what a command shows
_WANTED = ("client_email", "private_key", "private_key_id", "token_uri")
_GOOGLE = "googleapis.com"
_GOOGLE_HOSTS = (f".{_GOOGLE}", ".google.com")
_API_KEY = re.compile(r"[!-~]{20,512}")  # of this broker, or of another issuer: neither has blanks


@dataclass(frozen=True, slots=True)
class KeyFile:
    """The fields of a service account's key file; `option` is how it was given, for errors."""

    fields: dict[str, Any]
    option: str

    @property
    def token_uri(self) -> str:
        return str(self.fields["token_uri"])

    @property
    def server(self) -> str:
        """The URL of the broker that made the key; "" if it is a key of Google's, or names no server."""
        url, universe = urlsplit(self.token_uri), self.fields.get("universe_domain", _GOOGLE)
        is_google = universe != _GOOGLE or f".{url.hostname}".endswith(_GOOGLE_HOSTS)
        is_brokers = url.scheme in ("http", "https") and url.path.endswith("/token") and not is_google
        return self.token_uri.removesuffix("/token") if is_brokers else ""

    @property
    def project(self) -> str | None:
        return self.fields.get("project_id") or None

    def signed(self, audience: str = AUDIENCE) -> str:
        """Returns a token that authenticates the caller.  Raises Misuse."""
        email, now = self.fields["client_email"], int(time.time())
        claims = {"iss": email, "sub": email, "aud": audience, "iat": now, "exp": now + _LIFETIME_SECONDS}
        try:
            headers = {"kid": self.fields["private_key_id"]}
            return jwt.encode(claims, self.fields["private_key"], algorithm="RS256", headers=headers)
        except (ValueError, TypeError, jwt.PyJWTError):
            raise Misuse(f"{self.option}: its private key cannot be used") from None

    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.signed()}"}


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key for what has no library."""

    key: str

    def headers(self) -> dict[str, str]:
        return {"X-Goog-Api-Key": self.key}


Credentials = KeyFile | ApiKey | None


def _parse_key_file(text: str, path: str, option: str) -> KeyFile:
    try:
        key = parse_json(text)
    except NotJson as error:
        raise Misuse(f"{option} {path} is not JSON: {error}") from None
    if not is_key_file(key):
        raise Misuse(f"{option} {path} is not the key file of a service account ({', '.join(_WANTED)})")
    return KeyFile(key, option)


def is_key_file(fields: Any) -> bool:
    """Whether these are the fields of a service account's key file."""
    return isinstance(fields, dict) and all(isinstance(fields.get(name), str) for name in _WANTED)


def read_credentials(given: str, option: str) -> KeyFile | ApiKey:
    """Reads a key file, a file with an API key, or an API key itself.  Raises Misuse, which shows no key."""
    path = os.path.expanduser(given)
    try:
        text = read_bytes(path, option, most=MAX_KEY_BYTES).decode() if os.path.isfile(path) else ""
    except UnicodeDecodeError:
        raise Misuse(f"{option} {given}: it is no text") from None
    if text.lstrip().startswith("{"):
        return _parse_key_file(text, given, option)
    if _API_KEY.fullmatch(text.strip()):
        return ApiKey(text.strip())
    if text:
        raise Misuse(f"{option} {given} is neither the key file of a service account nor an API key")
    if _API_KEY.fullmatch(given) and not looks_like_a_path(given):
        return ApiKey(given)
    what = f"{given}: there is no such file" if looks_like_a_path(given) else "it is no file, and no API key"
    raise Misuse(f"{option} {what}; `broker auth keys create` writes a key file")


def looks_like_a_path(given: str) -> bool:
    """Rather than like a key, which no error may show."""
    return "/" in given or given.startswith(("~", ".")) or given.endswith((".json", ".key", ".txt"))
