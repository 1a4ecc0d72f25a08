"""Parses the names of PostgreSQL databases that operators write, and removes secrets from them.

Accepted are PostgreSQL's own URLs (postgresql://, postgres://), SQLAlchemy's (postgresql+psycopg://, with any
driver), and the `key=value` words of libpq.  libpq repeats text that it cannot parse in its errors, including
passwords, so such text is refused here, and the error contains nothing of it but the scheme.
"""

import re
from urllib.parse import quote

DEFAULT_SCHEMA = "broker"

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_NOT_ESCAPED = re.compile(r"%(?![0-9A-Fa-f]{2})|%00")
_BLANKS = re.compile(r"[\x00-\x20\x7f]")
_SECRETS = "password|sslpassword|scram_client_key|scram_server_key|oauth_client_secret"
_SECRET_OF_URL = re.compile(rf"([?&](?:{_SECRETS})=)[^&]*")
_WORDS = re.compile(r"\s*[a-z_]+\s*=")
_EACH_WORD = re.compile(r"([a-z_]+)\s*=\s*('(?:[^'\\]|\\.)*'|\S*)")
_SHOWN_WORDS = ("host", "hostaddr", "port", "dbname", "user")
_ESCAPES = "in a user, password or name write %40 for @, %2F for /, %3A for :, %3F for ? and %25 for %"

# A name that is the same with and without quotes, and leaves space for names derived from it (LISTEN has 63 bytes).
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,39}")


def check_database_url(url: str) -> str:
    """The URL in a spelling that libpq understands.

    Raises ValueError, with a reason that shows nothing of the URL but its scheme.
    """
    scheme = _SCHEME.match(url)
    if scheme is None:
        if not _WORDS.match(url):
            raise ValueError("it is no URL")
        return url
    if scheme[1].partition("+")[0] not in ("postgresql", "postgres"):
        raise ValueError(f"it begins with {scheme[0]}, and the broker needs PostgreSQL")
    rest = url[scheme.end() :]
    _check_characters(rest)
    return f"postgresql://{rest}"


def _check_characters(rest: str) -> None:
    """Raises ValueError for what follows the scheme, if libpq would divide it elsewhere than was meant."""
    if _NOT_ESCAPED.search(rest):
        raise ValueError(f"it has a % that begins no escape: {_ESCAPES}")
    if _BLANKS.search(rest):
        raise ValueError(
            "it has a space or control character that is not escaped, as %20 is: was it cut or joined?"
        )
    authority, path, query = _divided(rest)
    if authority.count("@") > 1 or "@" in path or ("@" in query and "@" not in authority):
        raise ValueError(f"it has an @, / or ? that is not escaped: {_ESCAPES}")
    for host in authority.rpartition("@")[2].split(","):
        _, bracket, port = host.rpartition("]")
        port = port.removeprefix(":") if bracket else port.partition(":")[2]
        if port and not (port.isascii() and port.isdigit() and 0 < int(port[:6]) < 65_536):
            raise ValueError(f"it has a port that is none, which is 1 to 65535: {_ESCAPES}")
    for pair in query.split("&") if query else ():
        if pair.count("=") != 1:
            raise ValueError('it has something other than name=value after its "?": in a value write %3D for =')


def _divided(rest: str) -> tuple[str, str, str]:
    """Divides the rest of a URL at its path and its question mark.

    Returns what comes before the path, the path, and what comes after the question mark.
    """
    before, _, query = rest.partition("?")
    authority, _, path = before.partition("/")
    return authority, path, query


def without_password(url: str) -> str:
    """Returns the parts of a database's URL that may be shown.

    Each secret is replaced by ***; of libpq's keyword form only the words that are no secrets are left.
    """
    if not url:  # none is given
        return ""
    scheme = _SCHEME.match(url)
    if scheme is None:
        words = _EACH_WORD.findall(url)
        return " ".join(f"{name}={value}" for name, value in words if name in _SHOWN_WORDS) or "***"
    try:
        rest = check_database_url(url).removeprefix("postgresql://")
    except ValueError:
        return f"{scheme[0]}***"
    authority, _, _ = _divided(rest)
    user, colon, _ = authority.partition("@")[0].partition(":")
    shown = f"{user}:***@{authority.partition('@')[2]}" if "@" in authority and colon else authority
    return "postgresql://" + shown + _SECRET_OF_URL.sub(r"\1***", rest[len(authority) :])


def with_password(url: str, password: str) -> str:
    """A URL that `check_database_url` gave, with a password.  Raises ValueError if it has one already."""
    if _SCHEME.match(url) is None:
        if any(name == "password" for name, _ in _EACH_WORD.findall(url)):
            raise ValueError
        escaped = password.replace("\\", "\\\\").replace("'", "\\'")
        return f"{url} password='{escaped}'"
    authority, _, query = _divided(check_database_url(url).removeprefix("postgresql://"))
    if ":" in authority.rpartition("@")[0] or re.search(r"(^|&)password=", query):
        raise ValueError
    return f"{url}{'&' if '?' in url else '?'}password={quote(password, safe='')}"


def check_schema_name(name: str) -> str:
    """The name of a schema that the broker's tables may be in.  Raises ValueError."""
    if not _SCHEMA.fullmatch(name) or name.startswith("pg_") or name == "information_schema":
        raise ValueError
    return name
