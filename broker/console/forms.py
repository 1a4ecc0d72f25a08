"""Forms that pages send."""

from urllib.parse import parse_qs

from starlette.requests import Request

MAX_FORM_BYTES = 65_536


async def form_field(request: Request, name: str) -> str | None:
    """Return a field of a form without the white space around it; None for a form that cannot be read."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MAX_FORM_BYTES:
            return None
    try:
        fields = parse_qs(body.decode("ascii"), keep_blank_values=True, max_num_fields=20, errors="strict")
    except ValueError:
        return None
    return fields.get(name, [""])[0].strip()
