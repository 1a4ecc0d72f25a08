"""Every setting of the broker, and the only reader of the environment.

docs/settings.md lists them; a test holds the two equal.
"""

import difflib
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, cast

from broker.domain.audiences import check_audiences
from broker.domain.audit_entry import AUDIT_DAYS
from broker.domain.database_url import check_database_url, check_schema_name, without_password
from broker.domain.web_origins import check_hosts, check_origins
from broker.setting_checks import (
    check_access_log,
    check_ca_file,
    check_certificate_file,
    check_certificate_principals,
    check_host,
    check_issuer,
    check_key_file,
    check_networks,
    check_new_file,
    check_oidc_issuers,
    check_password_file,
    check_principal_quotas,
    check_quotas,
    check_secrets_key_file,
)
from broker.setting_values import CLIENT_VARIABLES, Kind, OneOf, Seconds, Switch, Text, Whole

PREFIX = "BROKER_"
_NEAR = 0.75  # of difflib's ratio: PROT is near PORT, and URL near nothing


def _setting(default: Any, meaning: str, kind: Kind, *, show: Callable[[str], str] = str) -> Any:
    return field(default=default, metadata={"meaning": meaning, "kind": kind, "show": show})


def default_data_dir() -> str:
    """Where an installed broker keeps its data: the XDG data directory ("": the user has no home)."""
    try:
        base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    except RuntimeError:
        return ""
    return str(Path(base) / "pubsub-broker")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The setting `x_y` is the option `--x-y`, else BROKER_X_Y in the environment, else the default."""

    host: str = _setting(
        "127.0.0.1",
        "Address to listen on; 0.0.0.0: all of IPv4.",
        Text("an address or a name of this machine, without a port", "ADDRESS", check_host, may_be_empty=False),
    )
    port: int = _setting(8085, "Port to listen on; 0: a free one, which is printed.", Whole(0, 65535, "PORT"))
    tls_certificate: str = _setting(
        "",
        "The port's certificate, and those between it and its authority: the port speaks TLS.",
        Text("a file with certificates (PEM)", "FILE", check_certificate_file),
    )
    tls_key: str = _setting(
        "",
        "The private key of the certificate.",
        Text("a file with a private key (PEM) without a passphrase", "FILE", check_key_file),
    )
    tls_client_ca: str = _setting(
        "",
        "Certificate authorities of clients: clients are asked for certificates that these have signed.",
        Text("a file with certificates (PEM)", "FILE", check_certificate_file),
    )
    tls_client_certificates: str = _setting(
        "required",
        "Whether a client may do without a certificate, if --tls-client-ca asks for one.",
        OneOf(("required", "optional")),
    )
    cleartext_port: int = _setting(
        0, "Another port, without TLS, beside one that speaks it; 0: none.", Whole(0, 65535, "PORT")
    )
    cleartext_host: str = _setting(
        "127.0.0.1",
        "Address of the port without TLS.",
        Text("an address or a name of this machine, without a port", "ADDRESS", check_host, may_be_empty=False),
    )
    metrics_port: int = _setting(
        0, "A port for GET /metrics alone, without TLS or authentication; 0: none.", Whole(0, 65535, "PORT")
    )
    metrics_host: str = _setting(
        "127.0.0.1",
        "Address of the port for metrics.",
        Text("an address or a name of this machine, without a port", "ADDRESS", check_host, may_be_empty=False),
    )
    data_dir: str = _setting(
        "",
        "Directory of the embedded PostgreSQL; default: `pubsub-broker` in the XDG data directory.",
        Text("a path", "PATH", may_be_empty=False),
    )
    database_url: str = _setting(
        "",
        "PostgreSQL 15+ of your own, also DATABASE_URL. Empty: the embedded one.",
        Text("a URL such as postgresql://localhost:5432/broker", "URL", check_database_url),
        show=without_password,
    )
    database_password_file: str = _setting(
        "",
        "The password for that database, which then does not stand in its URL.",
        Text("a file with one line", "FILE", check_password_file),
    )
    database_schema: str = _setting(
        "",
        "Schema of the database for the broker's tables; default: `broker`, or `public` with those of 0.1.0.",
        Text("1 to 40 small letters, digits and _, the first no digit, not pg_…", "NAME", check_schema_name),
    )
    workers: int = _setting(1, "Number of broker processes that share the port.", Whole(1, 256))
    pull_wait_seconds: float = _setting(
        20.0, "How long a pull waits for its first message; 0: not at all.", Seconds(0, 3600)
    )
    pool_size: int = _setting(8, "Database connections of each process for hot statements.", Whole(1, 1000))
    request_memory_mb: int = _setting(
        256,
        "Bytes (MB) of requests that a process holds at most, and as many again of answers to slow readers.",
        Whole(1, 1_000_000, "MB"),
    )
    max_waiting_pulls: int = _setting(
        20_000,
        "Pulls that wait at most in each process; one project has four fifths of them at most.",
        Whole(1, 1_000_000),
    )
    janitor_interval_seconds: float = _setting(
        30.0,
        "How often partitions are made ahead and space is given back.",
        Seconds(1, 300),  # they are made 10 minutes ahead (store/log/partitions.py), and one look may fail
    )
    shards_per_topic: int = _setting(
        1, "Shards of a new topic; more spread one hot topic over more writers.", Whole(1, 256)
    )
    min_delivery_attempts: int = _setting(
        5, "Smallest maxDeliveryAttempts of a dead-letter policy; Google's service has 5.", Whole(1, 5)
    )
    operations_at_once: int = _setting(10, "Operations of a project that may be under way.", Whole(1, 1_000))
    operation_days: int = _setting(7, "Days for which operations that have ended are kept.", Whole(1, 365))
    issuer: str = _setting(
        "",
        "Issuer (iss) of the tokens that pushes carry: the URL at which receivers reach the broker.",
        Text("a URL such as https://broker.example.com", "URL", check_issuer),
    )
    quotas: str = _setting(
        "",
        "What each project may use, unless its own quotas say otherwise.",
        Text("limits such as publishMessages=1000,topics=100, commas between", "LIMITS", check_quotas),
    )
    principal_quotas: str = _setting(
        "",
        "What each principal may use of a project, a second, unless its quotas say otherwise.",
        Text("rates such as publishBytes=1000000, commas between", "LIMITS", check_principal_quotas),
    )
    auth: str = _setting(
        "off",
        "Whether callers must show who they are; off: anybody who reaches the port may do anything.",
        OneOf(("off", "required")),
    )
    auth_audiences: str = _setting(
        "",
        "Other URLs that tokens may be for (aud), beside the issuer, the address, and Google's.",
        Text("URLs such as https://broker.example.com, commas between", "URLS", check_audiences),
    )
    oidc_issuers: str = _setting(
        "",
        "Issuers outside of the broker whose tokens are taken (OpenID Connect).",
        Text("a file with tables [[issuer]] (TOML)", "FILE", check_oidc_issuers),
    )
    certificate_principals: str = _setting(
        "",
        "Whom clients' certificates are of (--tls-client-ca), by their alternative names.",
        Text("a file with tables [[certificate]] (TOML)", "FILE", check_certificate_principals),
    )
    secrets_key_file: str = _setting(
        "",
        "Keys that encrypt what is secret in the database; default: `secrets.key` beside an embedded one.",
        Text("a file with keys, each the base64 of 32 bytes", "FILE", check_secrets_key_file),
    )
    insecure_transport: bool = _setting(
        False,
        "Whether credentials may come in cleartext to an address that is not loopback.",
        Switch(),
    )
    audit: str = _setting(
        "auto",
        "What the audit log has: changes (and denials), or all calls; auto: changes, with --auth required.",
        OneOf(("auto", "off", "changes", "all")),
    )
    audit_file: str = _setting(
        "",
        "A file for the audit log, a line of JSON for each entry, besides its table.",
        Text("a path in a directory that exists", "FILE", check_new_file),
    )
    audit_days: int = _setting(AUDIT_DAYS, "Days for which the audit log is kept in its table.", Whole(1, 3_650))
    allowed_hosts: str = _setting(
        "",
        "Names that clients reach the broker by without TLS, beside addresses and names that nobody else can own.",
        Text("names such as broker.example.com or *.example.com, commas between", "HOSTS", check_hosts),
    )
    cors_origins: str = _setting(
        "",
        "Origins of web pages that may call the broker; pages of other origins are refused.",
        Text("origins such as https://console.example.com, commas between", "ORIGINS", check_origins),
    )
    push_private_addresses: str = _setting(
        "",
        "Whether pushes may go to private, loopback and link-local addresses; default: allow, with --auth required "
        "deny.",
        OneOf(("allow", "deny")),
    )
    push_allowed_networks: str = _setting(
        "",
        "Networks that pushes may go to although private addresses are denied.",
        Text("networks (CIDR) such as 10.1.0.0/16, commas between", "NETWORKS", check_networks),
    )
    push_ca_file: str = _setting(
        "",
        "Certificate authorities that endpoints are trusted by, besides the system's.",
        Text("a file with certificates (PEM)", "FILE", check_ca_file),
    )
    log_level: str = _setting("info", "The least that is logged.", OneOf(("debug", "info", "warning", "error")))
    log_format: str = _setting("text", "How a line of the log looks.", OneOf(("text", "json")))
    access_log: str = _setting(
        "off",
        "A line for each call: in the log, or in a file of its own.",
        Text("off, on, or a path in a directory that exists", "off|on|FILE", check_access_log, may_be_empty=False),
    )
    slow_request_seconds: float = _setting(
        0.0, "A call that takes so long has a line that says where the time went; 0: none.", Seconds(0, 3600)
    )


NAMES: tuple[str, ...] = tuple(setting.name for setting in fields(Settings))
_FIELDS = {setting.name: setting for setting in fields(Settings)}


class SettingError(ValueError):
    """A setting that cannot be; the message is one line for the operator."""


@dataclass(frozen=True, slots=True)
class SettingsInForce:
    """What is in force, where it is from ("default", "BROKER_PORT", "--port"), and which variables were ignored."""

    settings: Settings
    origins: Mapping[str, str]
    ignored: Sequence[str]

    def shown(self, name: str) -> str:
        """The value as it may be shown to people: without a password."""
        text: str = _FIELDS[name].metadata["show"](_text(getattr(self.settings, name)))
        return text


def option(name: str) -> str:
    """The option that gives a setting, such as `--pool-size`."""
    return "--" + name.replace("_", "-")


def variable(name: str) -> str:
    """The environment variable that gives a setting, such as BROKER_POOL_SIZE."""
    return PREFIX + name.upper()


def kind(name: str) -> Kind:
    """What the setting may be."""
    return cast(Kind, _FIELDS[name].metadata["kind"])


def meaning(name: str) -> str:
    """What the setting does, in a sentence or two."""
    text: str = _FIELDS[name].metadata["meaning"]
    return text


def default(name: str) -> str:
    """What the setting is unless it is given, as text ("": nothing)."""
    return _text(_FIELDS[name].default)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def find_settings(
    options: Mapping[str, str | None], *, names: Iterable[str] = NAMES, environment: Mapping[str, str] | None = None
) -> SettingsInForce:
    """The settings `names` as they were given, checked; the others have their defaults.  Raises SettingError.

    `options`: those of the command line, by the setting's name.  An empty variable is as one that is not set.
    """
    environment = os.environ if environment is None else environment
    ignored = _unknown_variables(environment)
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for name in names:
        origin, text = _given(name, options, environment)
        origins[name] = origin or "default"
        if origin:
            values[name] = _read(name, origin, text)
    if "data_dir" not in values:
        values["data_dir"] = default_data_dir()
    if "push_private_addresses" not in values:
        values["push_private_addresses"] = "deny" if values.get("auth") == "required" else "allow"
    return SettingsInForce(Settings(**values), origins, ignored)


def asks_for_traces(environment: Mapping[str, str] | None = None) -> bool:
    """Whether OpenTelemetry's own variables do (https://opentelemetry.io/docs/specs/otel/configuration/
    sdk-environment-variables/): they name an exporter or its endpoint, and do not switch it off.  Raises
    SettingError for a protocol that the broker does not send by.
    """
    environment = os.environ if environment is None else environment
    exporter = environment.get("OTEL_TRACES_EXPORTER", "")
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true" or exporter not in ("", "otlp"):
        return False
    endpoints = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    asks = bool(exporter) or any(environment.get(name) for name in endpoints)
    for name in ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL") if asks else ():
        if (protocol := environment.get(name)) and protocol != "http/protobuf":
            what = "leave it out, and name the collector's port for HTTP, which is 4318 by custom"
            raise SettingError(f"{name} must be http/protobuf, not {protocol[:40]!r}: {what}")
        if protocol:  # that of traces goes before the other
            break
    return asks


def forget_session_variables() -> None:
    """Take from the environment what libpq tells each session by itself, behind whatever the broker tells it.

    A service's environment has them for other programs.  Processes that are started from here on do not get them.
    """
    # They have no keyword of a connection's: https://www.postgresql.org/docs/current/libpq-envars.html
    for name in ("PGDATESTYLE", "PGTZ", "PGGEQO"):
        os.environ.pop(name, None)


def _given(name: str, options: Mapping[str, str | None], environment: Mapping[str, str]) -> tuple[str, str]:
    """Where the setting was given ("": nowhere), and as what."""
    if (text := options.get(name)) is not None:
        return option(name), text
    variables = [variable(name)] + (["DATABASE_URL"] if name == "database_url" else [])
    for given in variables:
        text = environment.get(given)
        if text and not _is_service_link(given, text):
            return given, text
    return "", ""


def _read(name: str, origin: str, text: str) -> Any:
    metadata = _FIELDS[name].metadata
    try:
        return metadata["kind"].read(text)
    except ValueError as error:
        more = f": {error}" if str(error) else ""
        shown = metadata["show"](text)
        raise SettingError(f"{origin} must be {metadata['kind'].allowed}, not {shown!r}{more}") from None


def _unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """Those that begin as ours do and are none.  Raises SettingError for one that is nearly ours.

    BROKER_NAME and the like belong to other programs.  But a near miss is meant for the broker: to go on without it
    could be to use another database, or to let pushes go where they may not.
    """
    unknown = []
    for given, text in environment.items():
        if not given.startswith(PREFIX) or _is_service_link(given, text):
            continue
        name = given.removeprefix(PREFIX).lower()
        if name in NAMES or given in CLIENT_VARIABLES:
            continue
        if near := difflib.get_close_matches(name, NAMES, 1, _NEAR):
            raise SettingError(
                f"{given} is no setting; did you mean {variable(near[0])}? (`broker serve --help` lists all)"
            )
        unknown.append(given)
    return sorted(unknown)


# What Kubernetes (enableServiceLinks) and `docker run --link` tell of a service that is called "broker":
# BROKER_PORT=tcp://10.0.0.1:8085, BROKER_SERVICE_HOST, BROKER_PORT_8085_TCP_ADDR, …
_SERVICE_LINK = re.compile(
    r"BROKER_(.+_)?(SERVICE_(HOST|PORT)(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
_SERVICE_URL = re.compile(r"(tcp|udp|sctp)://")


def _is_service_link(given: str, text: str) -> bool:
    is_url = given.endswith("_PORT") and _SERVICE_URL.match(text) is not None
    return is_url or _SERVICE_LINK.fullmatch(given) is not None
