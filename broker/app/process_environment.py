"""Makes the environment that the process was started with safe, before anything reads it.

A service's environment is written for other programs as well, and mounted secrets often end in a newline.  libpq,
PostgreSQL's programs and OpenTelemetry read the environment themselves, so variables that they must not see are
removed once, at the start.  Child processes inherit the result.
"""

import os
from collections.abc import Mapping

# libpq sends these after the session settings of the broker, and no keyword overrides them:
# https://www.postgresql.org/docs/current/libpq-envars.html
_SESSION_VARIABLES = ("PGDATESTYLE", "PGTZ", "PGGEQO")
_SERVICE_VARIABLES = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "NOTIFY_SOCKET")
_taken: dict[str, str] = {}  # variables from the service manager
_POSTGRESQL = "PG"  # the prefix of all variables of libpq, initdb and the server

_TRIMMED = ("BROKER_", "OTEL_")  # prefixes of names
_TRIMMED_NAMES = ("DATABASE_URL", "GOOGLE_APPLICATION_CREDENTIALS", "XDG_CONFIG_HOME", "XDG_DATA_HOME")


def tidy_environment() -> None:
    """Trim white space from the ends of values that the broker reads, and drop PGDATESTYLE, PGTZ and PGGEQO."""
    for name, text in os.environ.items():
        if (name.startswith(_TRIMMED) or name in _TRIMMED_NAMES) and text != text.strip():
            os.environ[name] = text.strip()
    for name in _SESSION_VARIABLES:
        os.environ.pop(name, None)


def forget_postgresql_variables() -> None:
    """Drop PGHOSTADDR, PGSERVICE, PGSSLMODE, PGDATA and all others of PostgreSQL.

    An embedded database is reached through its own socket.  With these variables libpq would reach another server,
    or none.
    """
    for name in [name for name in os.environ if name.startswith(_POSTGRESQL)]:
        del os.environ[name]


def take_service_variables() -> dict[str, str]:
    """Remove what a service manager has handed over: sockets, and where to report the state.  Returns it each time.

    Child processes do not inherit these variables: PostgreSQL would report that it is ready as well.
    """
    _taken.update({name: text for name in _SERVICE_VARIABLES if (text := os.environ.pop(name, ""))})
    return dict(_taken)


def environment() -> dict[str, str]:
    """Returns a copy of the environment."""
    return dict(os.environ)


def set_environment(environment: Mapping[str, str]) -> None:
    """Replace the environment by another one."""
    os.environ.clear()
    os.environ.update(environment)
