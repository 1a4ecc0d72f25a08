"""The configuration of a broker process.  It imports next to nothing, because the parent process loads it, too."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from urllib.parse import urlsplit

from broker.access.audit.audit_entry import AUDIT_DAYS, AUDIT_ENTRIES
from broker.access.principals.certificate_principals import CertificatePrincipals
from broker.access.principals.oidc_issuer import OidcIssuer
from broker.core.records.delivery_record import RECORD_HOURS
from broker.db.database_url import DEFAULT_SCHEMA
from broker.features.inspect.fleet.shown_setting import ShownSetting
from broker.features.quotas.quota import ProjectQuotas, parse_limits, parse_rates
from broker.model.audiences import split_list
from broker.model.subscription import MIN_DELIVERY_ATTEMPTS
from broker.net.http1.web_origins import name_of


def connections_of_a_process(pool_size: int) -> int:
    """The most database connections that a process opens: `pool_size` for hot statements, 8 for the others, one
    that listens for notifications, and one for changes of access.
    """
    return pool_size + 10


def is_loopback(host: str) -> bool:
    """Whether only programs of the same machine reach an address; False for a name other than "localhost"."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def serves_console(console: str, *, auth: str, host: str) -> bool:
    """Whether the setting `console` has the console served: "auto" does where strangers cannot read it."""
    return console == "on" or (console == "auto" and (auth == "required" or is_loopback(host)))


@dataclass(frozen=True, slots=True, kw_only=True)
class AppConfig:
    """The configuration of a broker process.

    The settings of the same names explain the fields (broker/app/settings/fields.py).  These are no settings:
    `dead_letter_interval_seconds`, how late a message may be on its dead-letter topic; `base_url`, where the broker
    listens, which is the issuer of its tokens if there is no other; `shown_settings`, the settings as operators may
    see them; and `ignored_settings`, warnings about those that are ignored.
    """

    database_url: str = field(repr=False)  # may have a password
    database_schema: str = DEFAULT_SCHEMA
    replica_database_url: str = field(default="", repr=False)
    replica_max_lag_seconds: float = 10.0
    hot_database_url: str = field(default="", repr=False)
    keep_alive_seconds: float = 620.0
    pull_wait_seconds: float = 20.0
    pool_size: int = 8
    request_memory_mb: int = 256
    max_waiting_pulls: int = 20_000
    max_scheduled_messages: int = 1_000_000
    database_size_max: int = 0  # bytes; 0: no limit
    janitor_interval_seconds: float = 30.0
    lag_interval_seconds: float = 10.0
    dead_letter_interval_seconds: float = 1.0
    shards_per_topic: int = 1
    min_delivery_attempts: int = MIN_DELIVERY_ATTEMPTS
    base_url: str = "http://127.0.0.1:8085"
    issuer: str = ""
    operations_at_once: int = 10
    operation_days: int = 7
    delivery_record_hours: int = RECORD_HOURS
    allow_reset: bool = False
    console: str = "off"
    console_read_only: bool = False
    quotas: str = ""
    principal_quotas: str = ""
    auth: str = "off"
    auth_audiences: str = ""
    oidc_issuers: Sequence[OidcIssuer] = ()
    certificate_principals: CertificatePrincipals = field(default_factory=dict)
    secrets_key_file: str = ""
    audit: str = "auto"
    audit_file: str = ""
    audit_days: int = AUDIT_DAYS
    audit_entries: int = AUDIT_ENTRIES
    host: str = ""
    allowed_hosts: str = ""
    cors_origins: str = ""
    push_private_addresses: str = "allow"
    push_allowed_networks: str = ""
    push_ca_file: str = ""
    push_failing_after: float = 60.0
    traces: bool = False
    access_log: str = "off"
    slow_request_seconds: float = 0.0
    shown_settings: Sequence[ShownSetting] = ()
    ignored_settings: Sequence[str] = ()

    @property
    def database_connections(self) -> int:
        """The most that this process opens."""
        return connections_of_a_process(self.pool_size)

    @property
    def token_issuer(self) -> str:
        """The issuer of the tokens that pushes carry."""
        return self.issuer or self.base_url

    @property
    def default_quotas(self) -> ProjectQuotas:
        """The quotas of projects for which no others are set."""
        return ProjectQuotas(parse_limits(self.quotas), parse_rates(self.principal_quotas))

    @property
    def address(self) -> str:
        """The URL at which the broker is reached, as far as it is known."""
        return self.token_issuer.rstrip("/")

    @property
    def has_console(self) -> bool:
        """Whether the web console is served."""
        return serves_console(self.console, auth=self.auth, host=self.host)

    @property
    def is_audited(self) -> bool:
        """Whether changes and denials are entered in the audit log."""
        return self.audit in ("changes", "all") or (self.audit == "auto" and self.auth == "required")

    @property
    def hosts(self) -> list[str]:
        """Names that it goes by, as far as they are known: those that it was given, and those of its URLs."""
        urls = [self.issuer, *self.audiences]
        named = [name_of(urlsplit(url).netloc) for url in urls if url]
        return [*split_list(self.allowed_hosts), *named, *([self.host] if self.host else [])]

    @property
    def origins(self) -> list[str]:
        """The origins of web pages that may call the broker."""
        return split_list(self.cors_origins)

    @property
    def audiences(self) -> list[str]:
        """The other URLs that the broker is addressed by."""
        return split_list(self.auth_audiences)
