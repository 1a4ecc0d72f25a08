"""Every setting of the broker: its default, its meaning, and the values it accepts.

docs/settings.md lists them, and a test keeps the two equal.  `find.py` reads their values.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, cast

from broker.access.audit.audit_entry import AUDIT_DAYS, AUDIT_ENTRIES
from broker.app.settings.checks import (
    AUTO,
    check_access_log,
    check_ca_file,
    check_certificate_file,
    check_certificate_principals,
    check_declarations,
    check_host,
    check_issuer,
    check_key_file,
    check_networks,
    check_new_file,
    check_oidc_issuers,
    check_password_file,
    check_principal_quotas,
    check_project_id,
    check_quotas,
    check_secrets_key_file,
    check_size,
    check_size_or_auto,
)
from broker.app.settings.kinds import Kind, OneOf, Seconds, Several, Switch, Text, Whole, WholeOrAuto
from broker.core.records.delivery_record import RECORD_HOURS
from broker.db.database_url import check_database_url, check_schema_name, without_password
from broker.model.audiences import check_audiences
from broker.net.http1.web_origins import check_hosts, check_origins


def _setting(default: Any, meaning: str, kind: Kind, *, show: Callable[[str], str] = str) -> Any:
    return field(default=default, metadata={"meaning": meaning, "kind": kind, "show": show})


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
    keep_alive_seconds: float = _setting(
        620.0,
        "How long an idle HTTP/1.1 connection is kept; longer than the proxies and clients before it keep theirs.",
        Seconds(10, 86_400),
    )
    data_dir: str = _setting(
        "",
        "Directory of the embedded PostgreSQL; default: `pubsub-broker` in the XDG data directory.",
        Text("a path", "PATH", may_be_empty=False),
    )
    disk_free_min: str = _setting(
        AUTO,
        "Publishing is paused while less is free on the disk of the embedded PostgreSQL; 0: never; auto: 1 GiB or "
        "5 % of the file system, whichever is more, but at most a fifth of it.",
        Text("auto, or a size such as 500MB or 2GiB", "SIZE", check_size_or_auto, may_be_empty=False),
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
    replica_database_url: str = _setting(
        "",
        "A standby of that database, which calls that only look read; empty: they read the primary.",
        Text("a URL such as postgresql://standby:5432/broker", "URL", check_database_url),
        show=without_password,
    )
    replica_max_lag_seconds: float = _setting(
        10.0, "How far the standby may be behind to be read.", Seconds(0.1, 3600)
    )
    hot_database_url: str = _setting(
        "",
        "Nodes of its Citus cluster (experimental), for publishes, claims and acks; "
        "empty: these go to that database, too.",
        Text("a URL such as postgresql://node1,node2:5432/broker", "URL", check_database_url),
        show=without_password,
    )
    database_size_max: str = _setting(
        "0",
        "Publishing is paused while the broker's tables take more; 0: never.",
        Text("a size such as 500MB or 2GiB", "SIZE", check_size, may_be_empty=False),
    )
    database_schema: str = _setting(
        "",
        "Schema of the database for the broker's tables; default: `broker`.",
        Text("1 to 40 small letters, digits and _, the first no digit, not pg_…", "NAME", check_schema_name),
    )
    apply: str = _setting(
        "",
        "Declarations of topics, subscriptions and so on, which hold before anybody is served.",
        Several("files (YAML or JSON), commas between", "FILE", check_declarations),
    )
    project: str = _setting(
        "",
        "The project of what is applied.",
        Text("the id of a project", "PROJECT", check_project_id),
    )
    workers: int = _setting(
        1, "Number of broker processes that share the port; auto: one for each processor.", WholeOrAuto(1, 256)
    )
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
    max_scheduled_messages: int = _setting(
        1_000_000, "Messages of a topic that wait for their time at most.", Whole(1, 100_000_000)
    )
    janitor_interval_seconds: float = _setting(
        30.0,
        "How often partitions are made ahead and space is given back.",
        Seconds(1, 300),  # they are created 10 minutes ahead (core/log/partitions.py), and one check may fail
    )
    lag_interval_seconds: float = _setting(
        10.0,
        "How often every subscription is sampled for lists of lags.",
        Seconds(1, 300),
    )
    shards_per_topic: int = _setting(
        1, "Shards of a new topic; more spread one hot topic over more writers.", Whole(1, 256)
    )
    min_delivery_attempts: int = _setting(
        5, "Smallest maxDeliveryAttempts of a dead-letter policy; Google's service has 5.", Whole(1, 5)
    )
    operations_at_once: int = _setting(10, "Operations of a project that may be under way.", Whole(1, 1_000))
    operation_days: int = _setting(7, "Days for which operations that have ended are kept.", Whole(1, 365))
    delivery_record_hours: int = _setting(
        RECORD_HOURS,
        "Hours for which it is recorded who acknowledged which message, and as long as the message is retained; "
        "0: nothing is.",
        Whole(0, 744),
    )
    console: str = _setting(
        AUTO,
        "Whether the web console is served at /console/; auto: with --auth required, or on a loopback address.",
        OneOf((AUTO, "on", "off")),
    )
    console_read_only: bool = _setting(
        False,
        "Whether the console only reads: it offers no action, and takes no form but those to sign in.",
        Switch(),
    )
    allow_reset: bool = _setting(
        False, "Whether POST /v1/projects/{project}:reset deletes all that a project has, for tests.", Switch()
    )
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
    audit_entries: int = _setting(
        AUDIT_ENTRIES,
        "Entries of the audit log that are kept of each project; denials and uses are deleted before changes.",
        Whole(100, 10_000_000),
    )
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
        Text("networks (CIDR) such as 10.2.0.0/16, commas between", "NETWORKS", check_networks),
    )
    push_ca_file: str = _setting(
        "",
        "Certificate authorities that endpoints are trusted by, besides the system's.",
        Text("a file with certificates (PEM)", "FILE", check_ca_file),
    )
    push_failing_after: float = _setting(
        60.0,
        "How long an endpoint must fail without a success to be reported in the log and as an event.",
        Seconds(0, 86_400),
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


PREFIX = "BROKER_"
FIELDS = {setting.name: setting for setting in fields(Settings)}
NAMES: tuple[str, ...] = tuple(FIELDS)


def option(name: str) -> str:
    """Returns the option of a setting, such as `--pool-size`."""
    return "--" + name.replace("_", "-")


def variable(name: str) -> str:
    """Returns the environment variable of a setting, such as BROKER_POOL_SIZE."""
    return PREFIX + name.upper()


def kind(name: str) -> Kind:
    """Returns the kind of values that a setting accepts."""
    return cast(Kind, FIELDS[name].metadata["kind"])


def meaning(name: str) -> str:
    """Returns a sentence or two about what a setting does."""
    text: str = FIELDS[name].metadata["meaning"]
    return text


def default(name: str) -> str:
    """Returns the default of a setting as text ("": none)."""
    return as_text(FIELDS[name].default)


def as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
