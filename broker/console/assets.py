"""Style sheet, scripts, icons and fonts.  Browsers keep them: their address has a hash of their contents."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from broker.console.compression import accepts_gzip, compress_file
from broker.console.prefix import PREFIX

_STATIC = Path(__file__).parent / "static"
_TYPES: Mapping[str, str] = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}
_HEADERS = {
    "Cache-Control": "public, max-age=31536000, immutable",
    "X-Content-Type-Options": "nosniff",
    "Vary": "Accept-Encoding",
}
_COMPRESSED = (".css", ".js", ".svg")  # fonts are compressed by their format


class Assets:
    """The files of the console, read and compressed once."""

    def __init__(self) -> None:
        paths = sorted(path for path in _STATIC.rglob("*") if path.suffix in _TYPES)
        self._files = {path.relative_to(_STATIC).as_posix(): path.read_bytes() for path in paths}
        self._compressed = {
            name: compress_file(content) for name, content in self._files.items() if name.endswith(_COMPRESSED)
        }
        digest = hashlib.sha256()
        for name, content in self._files.items():
            digest.update(name.encode() + b"\0" + content)
        self._root = f"{PREFIX}assets/{digest.hexdigest()[:16]}/"

    def url(self, name: str) -> str:
        """Return the address of a file.  Raises KeyError if there is no such file."""
        if name not in self._files:
            raise KeyError(name)
        return self._root + name

    def routes(self) -> list[Route]:
        return [Route(self._root + "{name:path}", self._serve)]

    async def _serve(self, request: Request) -> Response:
        name = request.path_params["name"]
        content = self._files.get(name)
        if content is None:
            return PlainTextResponse("There is no such file.", 404, headers={"Cache-Control": "no-store"})
        media_type = _TYPES[Path(name).suffix]
        if name in self._compressed and accepts_gzip(request):
            headers = {**_HEADERS, "Content-Encoding": "gzip"}
            return Response(self._compressed[name], media_type=media_type, headers=headers)
        return Response(content, media_type=media_type, headers=_HEADERS)
