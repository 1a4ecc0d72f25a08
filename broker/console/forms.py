"""Reads the form of a request."""

from urllib.parse import parse_qsl

from starlette.requests import Request

from broker.model.errors import InvalidArgument

MAX_FORM_BYTES = 16_000_000  # a message of 10 MB in base64, percent-encoded
_MAX_SIGN_IN_BYTES = 65_536
_MAX_FIELDS = 60


async def read_form(request: Request, most: int = MAX_FORM_BYTES) -> dict[str, str] | None:
    """Return the fields of a form of at most `most` bytes; None for one that is longer or is not a form of text."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > most:
            return None
    try:
        text = body.decode("ascii")
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=_MAX_FIELDS, errors="strict"))
    except ValueError:
        return None


async def form_field(request: Request, name: str) -> str | None:
    """Return a field of a form of the sign-in without the white space around it; None if it cannot be read."""
    form = await read_form(request, _MAX_SIGN_IN_BYTES)
    return None if form is None else form.get(name, "").strip()


async def token_of_link(request: Request) -> str:
    """Return the token that the page of a link has sent.  Raises InvalidArgument: there is none."""
    token = await form_field(request, "token")
    if not token:
        raise InvalidArgument("Paste the part of the link that follows #.")
    return token
