"""The cookies of the console.  No script reads them, and the API takes none."""

from starlette.requests import Request
from starlette.responses import Response

from broker.console.prefix import PREFIX

ROOT = PREFIX.rstrip("/")


class Cookie:
    """A cookie of one name.

    SameSite=Lax: browsers send it when a user follows a link from another site, so that the user is signed in.
    Over TLS the prefix of the name keeps other hosts of the domain from setting a cookie of the whole host
    (`__Host-`), and connections without TLS from setting any (`__Secure-`).
    """

    def __init__(self, name: str, *, path: str = ROOT, secure: bool) -> None:
        """`secure`: the broker is reached over TLS."""
        self._path = path
        self._secure = secure
        self._name = (("__Host-" if path == "/" else "__Secure-") if secure else "") + name

    def of(self, request: Request) -> str:
        """Return the value; "" if there is none."""
        return request.cookies.get(self._name, "")

    def set(self, response: Response, value: str, *, path: str = "", seconds: int | None = None) -> None:
        """`path`: a narrower one.  `seconds`: how long browsers keep it; None: until they are closed."""
        response.set_cookie(
            self._name,
            value,
            max_age=seconds,
            path=path or self._path,
            httponly=True,
            samesite="lax",
            secure=self._secure,
        )

    def delete(self, response: Response) -> None:
        response.delete_cookie(self._name, path=self._path, httponly=True, samesite="lax", secure=self._secure)
