"""Compression of pages and files by gzip.

A page can have a secret, such as the body of a message, beside text that its address determines.  Somebody who can
open such addresses in a victim's browser, and see how long the answers are, could guess the secret (BREACH,
https://www.breachattack.com).  So a page is not compressed for a request that another site has caused.  Over TLS
all browsers since 2023 say that in Sec-Fetch-Site; without TLS there is nothing to guess.
"""

import gzip

from starlette.requests import Request
from starlette.responses import Response

LEAST_BYTES = 1_000  # that are worth it
_QUICK = 1  # zlib's level for pages, which are compressed for each request
_BEST = 9  # for files, which are compressed once
_OTHER_SITES = ("cross-site", "same-site")


def compress_file(content: bytes) -> bytes:
    """Return a file as gzip."""
    return gzip.compress(content, _BEST, mtime=0)


def accepts_gzip(request: Request) -> bool:
    """Return whether the client takes gzip: it names it without refusing it by "q=0"."""
    for one in request.headers.get("accept-encoding", "").lower().split(","):
        coding, _, quality = one.partition(";")
        if coding.strip() == "gzip":
            return quality.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def is_compressed(request: Request) -> bool:
    """Return whether the answer to a request is compressed, if it is long enough."""
    return accepts_gzip(request) and request.headers.get("sec-fetch-site") not in _OTHER_SITES


def compress_page(request: Request, response: Response) -> Response:
    """Compress the body of an answer, if that is of use and safe."""
    response.headers["Vary"] = "Accept-Encoding, Sec-Fetch-Site"
    body = bytes(response.body)
    if len(body) >= LEAST_BYTES and is_compressed(request):
        response.body = gzip.compress(body, _QUICK, mtime=0)
        response.headers["Content-Encoding"] = "gzip"
        response.headers["Content-Length"] = str(len(response.body))
    return response
