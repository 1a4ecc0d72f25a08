"""Explains why a server did not answer, and what to do about it."""

import ssl
from collections.abc import Iterator
from typing import NamedTuple

import httpx

_OTHER_SERVER = "--url, BROKER_URL or `broker context use` name another server"
_CA_FILE = (
    "--ca-file trusts the server's own certificate, or that of your authority, if you give its file "
    "(`broker context set NAME --ca-file FILE` keeps it)"
)
_VERIFY_CODES = {  # https://docs.openssl.org/master/man3/X509_STORE_CTX_get_error/
    10: "renew the server's certificate",  # expired
    62: "call the server by a name or address that its certificate has",  # hostname mismatch
    64: "call the server by a name or address that its certificate has",  # IP address mismatch
}


class Unreached(NamedTuple):
    """`seen` completes a sentence that begins with the server's URL."""

    seen: str
    remedy: str


def why_unreached(error: BaseException, *, ca_file: str | None = None) -> Unreached:
    """`error`: of httpx, or an OSError; `ca_file`: the authority that was given."""
    chain = list(_chain(error))
    text = " ".join(map(str, chain))
    if "certificate required" in text.lower().replace("_", " "):
        remedy = "these commands have none: call a port for which --tls-client-certificates is optional"
        return Unreached("wants a certificate of the client", remedy)
    for each in chain:
        if isinstance(each, ssl.SSLCertVerificationError):
            return _untrusted(each, ca_file)
        if isinstance(each, ssl.SSLError):
            seen = f"does not speak TLS as expected: {_said(error)}"
            return Unreached(seen, "is it http:// rather than https://?")
    return _without_answer(error, text)


def _untrusted(error: ssl.SSLCertVerificationError, ca_file: str | None) -> Unreached:
    remedy = _VERIFY_CODES.get(error.verify_code)
    if remedy is None:
        remedy = _CA_FILE if ca_file is None else f"{ca_file} does not have the authority that signed it"
    return Unreached(f"has a certificate that is not trusted: {error.verify_message.rstrip('.')}", remedy)


def _without_answer(error: BaseException, text: str) -> Unreached:
    """`text`: all that is known of the error."""
    match error:
        case httpx.ConnectTimeout() | httpx.PoolTimeout():
            return Unreached("cannot be reached: no connection in time", f"is there a firewall? {_OTHER_SERVER}")
        case httpx.TimeoutException() | TimeoutError():
            return Unreached("accepts connections and does not answer in time", "look at the server's log")
        case httpx.ConnectError() | OSError():
            remedy = f"`broker serve` starts a broker, and {_OTHER_SERVER}"
            return Unreached(f"cannot be reached: {_said(error)}", remedy)
        case httpx.RemoteProtocolError() if "illegal" in text:
            return Unreached("answers with something other than HTTP", "is it https:// rather than http://?")
        case httpx.RemoteProtocolError() | httpx.ReadError() | httpx.WriteError():
            seen = f"accepts connections and closes them without an answer ({_said(error)})"
            return Unreached(seen, "look at its log, and at proxies before it; is it https:// rather than http://?")
        case httpx.ProxyError():
            seen = f"is called through a proxy, which failed: {_said(error)}"
            return Unreached(seen, "HTTP_PROXY or HTTPS_PROXY names the proxy")
        case _:
            seen = f"could not be called ({type(error).__name__}: {_said(error)})"
            return Unreached(seen, "look at --url, and at the server's log")


def _said(error: BaseException) -> str:
    return str(error).strip().rstrip(".") or type(error).__name__


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
