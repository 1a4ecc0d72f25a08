"""A running broker, as the commands of `broker auth` call it: over HTTP, with a service account's key file."""

import ssl
from types import TracebackType
from typing import Any
from urllib.parse import quote

import httpx

from broker.cli.client.credentials import read_key_file
from broker.cli.stop import Misuse, Stop

Json = dict[str, Any]

DEFAULT_ENDPOINT = "http://127.0.0.1:8085"
_TIMEOUT_SECONDS = 60.0
_GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"


class Refused(Stop):
    """The broker has answered with an error; `status` is its canonical code."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class Api:
    """Closed after use.  Each call raises Stop where it fails."""

    def __init__(self, endpoint: str | None, key_file: str | None, ca_file: str | None) -> None:
        """`endpoint` None: the broker that the key file names.  `key_file` None: the broker asks nobody who calls.

        Raises Misuse.
        """
        self._key = read_key_file(key_file, "--key-file") if key_file else None
        named = self._key.issuer if self._key else DEFAULT_ENDPOINT
        self.endpoint = (endpoint or named).rstrip("/")
        self._client = httpx.Client(timeout=_TIMEOUT_SECONDS, verify=_tls(self.endpoint, ca_file))

    def __enter__(self) -> "Api":
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self._client.close()

    def call(self, method: str, path: str, body: Any = None, params: dict[str, Any] | None = None) -> Json:
        """The answer of `/v1/{path}`.  Raises Refused, Stop."""
        headers = self._key.headers() if self._key else {}
        return self._send(method, f"/v1/{quote(path, safe='/:@')}", json=body, params=params, headers=headers)

    def all_of(self, path: str, field: str) -> list[Json]:
        """What a list has, of all its pages.  Raises Refused, Stop."""
        found: list[Json] = []
        token = ""
        while True:
            answer = self.call("GET", path, params={"pageToken": token} if token else None)
            found += answer.get(field, [])
            token = answer.get("nextPageToken", "")
            if not token:
                return found

    def access_token(self) -> Json:
        """What POST /token answers (RFC 7523).  Raises Refused, Stop; Misuse without a key file."""
        if self._key is None:
            raise Misuse("a token is made from a key: give --key-file, or set GOOGLE_APPLICATION_CREDENTIALS")
        assertion = self._key.signed(self._key.token_uri)
        return self._send("POST", "/token", data={"grant_type": _GRANT, "assertion": assertion})

    def _send(self, method: str, path: str, **options: Any) -> Json:
        try:
            response = self._client.request(method, f"{self.endpoint}{path}", **options)
            answer: Any = response.json() if response.content else {}
        except httpx.HTTPError as error:
            raise Stop(f"{self.endpoint} cannot be reached: {error} (--endpoint)") from error
        except httpx.InvalidURL as error:
            raise Misuse(f"--endpoint must be a URL such as {DEFAULT_ENDPOINT}: {error}") from None
        except ValueError:
            raise Stop(f"{self.endpoint} does not answer as a broker does ({response.status_code})") from None
        if response.is_success and isinstance(answer, dict):
            return answer
        raise _refused(response.status_code, answer)


def _refused(code: int, answer: Any) -> Refused:
    error = answer.get("error") if isinstance(answer, dict) else None
    if isinstance(error, dict):
        return Refused(str(error.get("status", code)), str(error.get("message", "")))
    if isinstance(error, str):  # as OAuth has them
        return Refused(error, str(answer.get("error_description", "")))
    return Refused(str(code), "the broker does not say why")


def _tls(endpoint: str, ca_file: str | None) -> ssl.SSLContext:
    if not endpoint.startswith("https://"):
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # reads nothing, and is not used
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise Misuse(f"--ca-file {ca_file}: {error.strerror or error}") from None
