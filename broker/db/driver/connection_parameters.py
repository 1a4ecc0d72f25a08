"""The parameters of every connection to the database, in one place.

The caller's URL may contain options of its own, and settings of its role and database apply, but the broker does
not depend on them: every setting that it relies on is given to each session by name, after the options of the
caller.
"""

import random
from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg import conninfo, pq

from broker.db.database_url import DEFAULT_SCHEMA, check_database_url

# A connection to a server that no longer answers fails after half a minute, unless the caller's URL sets a time.
_REACHING: dict[str, Any] = {
    "connect_timeout": 5,
    "tcp_user_timeout": 30_000,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
}

_OF_A_HOST = ("host", "hostaddr", "port")  # of each server, where there are several

# The settings of every session, whatever the server, the database, the role and the URL set.
_SESSION_SETTINGS = {
    "synchronous_commit": "on",  # an answer means "on disk" (A1)
    "default_transaction_isolation": "read committed",  # a claim's reads come after its locks, in later snapshots
    "default_transaction_read_only": "off",
    "default_transaction_deferrable": "off",
    "default_table_access_method": "heap",  # partitions are created constantly, and their rows are updated
    "lock_timeout": "0",  # statement_timeout ends a wait
    "statement_timeout": "0",  # pools have their own, and migrations may take long
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",
    "client_min_messages": "notice",  # a commit that no standby has confirmed is reported as a warning
    "standard_conforming_strings": "on",
    "quote_all_identifiers": "off",
    "transform_null_equals": "off",
    "array_nulls": "on",
    "timezone": "UTC",
    "datestyle": "ISO",  # what the driver reads
    "intervalstyle": "postgres",
    "bytea_output": "hex",
    "jit": "off",  # compiling costs more than any hot statement runs
}


def connection_parameters(
    url: str,
    *,
    schema: str,
    application_name: str = "",
    settings: Mapping[str, str] | None = None,
    target: str = "read-write",
) -> dict[str, Any]:
    """Keywords for psycopg's `connect`: `schema` is where the session finds tables; `settings`: more of its own;
    `target`: which of several hosts it is to be, the primary, whichever that is by now (L2).

    Raises ValueError for a URL that cannot be used, with a reason that shows no secret.
    """
    try:
        parameters: dict[str, Any] = dict(conninfo.conninfo_to_dict(check_database_url(url)))
    except psycopg.ProgrammingError as error:  # its message repeats the text that it cannot parse
        raise ValueError(f"it has a parameter that PostgreSQL does not know{_named(error)}") from None
    ours = {**_SESSION_SETTINGS, "search_path": schema, **(settings or {})}
    options = [parameters.get("options") or _options_of_environment()]
    options += [f"-c {name}={_escaped(value)}" for name, value in ours.items()]  # the last of a name counts
    if parameters.get("host"):
        parameters.setdefault("hostaddr", "")  # PGHOSTADDR would lead to another server than the URL names
    if application_name:
        parameters["application_name"] = application_name
    return {
        **_REACHING,
        "target_session_attrs": target,
        **parameters,
        "fallback_application_name": session_name(schema),
        "client_encoding": "UTF8",
        "options": " ".join(options).strip(),
    }


def each_host(parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The parameters for each of the servers that they name."""
    lists = {name: str(parameters[name]).split(",") for name in _OF_A_HOST if parameters.get(name)}
    count = max(map(len, lists.values()), default=1)
    # One port may stand for all.
    return [
        {**parameters, **{name: each[number if len(each) > 1 else 0] for name, each in lists.items()}}
        for number in range(count)
    ]


def in_any_order(parameters: Mapping[str, Any], *, first: int) -> dict[str, Any]:
    """The same servers, the one with this number and then the others by chance: the first that answers is taken."""
    hosts = each_host(parameters)
    order = [hosts.pop(first), *random.sample(hosts, len(hosts))]
    names = [name for name in _OF_A_HOST if parameters.get(name)]
    return {**parameters, **{name: ",".join(each[name] for each in order) for name in names}}


def session_name(schema: str) -> str:
    """The application_name of sessions that work in a schema, unless the caller gives them another."""
    return "broker" if schema == DEFAULT_SCHEMA else f"broker {schema}"


def _named(error: psycopg.Error) -> str:
    """The name of the parameter that a URL has and libpq does not know, if that is what is wrong."""
    _, found, name = str(error).partition('invalid URI query parameter: "')
    return f": {name.partition(chr(34))[0]}" if found else ""


def _options_of_environment() -> str:
    """Returns the options that libpq would use if the URL has no `options`:

    PGOPTIONS, or those of a service file.
    """
    defaults = {default.keyword: default.val for default in pq.Conninfo.get_defaults()}
    return (defaults.get(b"options") or b"").decode()


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace(" ", "\\ ")
