"""Reads the documents of an OIDC issuer over HTTP.

httpx is slow to load, and few brokers have an issuer: issuer_keys.py imports this module when it first reads keys.
"""

import ssl
from collections.abc import Mapping
from typing import Any

import httpx
import msgspec

MAX_DOCUMENT_BYTES = 1_000_000
_MAX_REASON = 300  # characters


class Disbelieved(Exception):
    """The answer of an issuer is not what it should be; the message says why."""


# The errors of a document that cannot be read or believed.  RecursionError: its JSON is nested too deeply.
UNREADABLE = (
    *(httpx.HTTPError, httpx.InvalidURL, TimeoutError, ValueError, msgspec.MsgspecError, Disbelieved),
    RecursionError,
)


def make_client(seconds: float) -> httpx.AsyncClient:
    """Returns a client that trusts the certificate authorities of the system and waits so long for an answer."""
    return httpx.AsyncClient(timeout=seconds, verify=ssl.create_default_context())


async def discover(client: httpx.AsyncClient, issuer: str) -> dict[str, Any]:
    """Returns the discovery document of an issuer.  Raises one of UNREADABLE."""
    document = await read_document(client, f"{issuer.rstrip('/')}/.well-known/openid-configuration")
    if document.get("issuer") != issuer:
        raise Disbelieved("the discovery document is of another issuer")
    return document


async def read_document(client: httpx.AsyncClient, url: str) -> dict[str, Any]:
    """Returns a JSON object.  Raises one of UNREADABLE."""
    async with client.stream("GET", url, headers={"Accept": "application/json"}) as response:
        if response.status_code != httpx.codes.OK:  # nor a redirection: the keys are where the issuer says
            raise Disbelieved(f"{url} answers {response.status_code}")
        return await _read_object(response, url)


async def post_form(
    client: httpx.AsyncClient, url: str, form: Mapping[str, str], *, auth: tuple[str, str] | None
) -> tuple[int, dict[str, Any]]:
    """Returns the status and the JSON object that answer a form.  `auth`: a user and a password, if any.

    Raises one of UNREADABLE.
    """
    headers = {"Accept": "application/json"}
    basic = None if auth is None else httpx.BasicAuth(*auth)
    async with client.stream("POST", url, data=form, headers=headers, auth=basic) as response:
        return response.status_code, await _read_object(response, url)


async def _read_object(response: httpx.Response, url: str) -> dict[str, Any]:
    body = bytearray()
    async for piece in response.aiter_bytes():
        body += piece
        if len(body) > MAX_DOCUMENT_BYTES:
            raise Disbelieved(f"{url} is longer than {MAX_DOCUMENT_BYTES} bytes")
    document = msgspec.json.decode(bytes(body))
    if not isinstance(document, dict):
        raise Disbelieved(f"{url} is no JSON object")
    return document


def reason_of(error: Exception, seconds: float) -> str:
    """Returns one line about one of UNREADABLE.  Requests for keys contain nothing that callers have sent."""
    if isinstance(error, TimeoutError | httpx.TimeoutException):
        return f"no answer within {seconds:.0f} s"
    if isinstance(error, RecursionError):
        return "the answer is nested too deeply"
    if isinstance(error, msgspec.MsgspecError):
        return "the answer is no JSON"
    return " ".join(str(error).split())[:_MAX_REASON] or type(error).__name__
