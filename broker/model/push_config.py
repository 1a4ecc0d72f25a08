"""The configuration of a push subscription (A8): Google's PushConfig, and options that Google's does not have."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import sha256
from typing import Annotated, ClassVar

from broker.model.api_json import Int32, JsonName

DEFAULT_FAILURE_THRESHOLD = 20  # messages that fail without a success in between, for a circuit breaker to open
DEFAULT_OPEN_DURATION = timedelta(seconds=10)
DEFAULT_DIGEST_MESSAGES = 100
DEFAULT_DIGEST_BYTES = 1_000_000
DEFAULT_DIGEST_DELAY = timedelta(seconds=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcToken:
    """Requests carry a token signed for this account.  `audience` "" means the endpoint's URL."""

    service_account_email: str
    audience: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PubsubWrapper:
    """Requests carry the JSON envelope, as they do without any wrapper."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoWrapper:
    """Requests carry the message's data alone.

    `write_metadata` adds headers with its attributes, id, publish time and ordering key.
    """

    write_metadata: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PushConfig:
    """google.pubsub.v1.PushConfig.  Without an endpoint ("") the subscription is pulled.

    At most one of the wrappers is given.
    """

    endpoint: Annotated[str, JsonName("pushEndpoint")] = ""
    attributes: Mapping[str, str] = field(default_factory=dict)
    oidc_token: OidcToken | None = None
    pubsub_wrapper: PubsubWrapper | None = None
    no_wrapper: NoWrapper | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """The limits of a digest.

    One POST carries up to `max_messages` (1 to 1,000) or about `max_bytes`, or the messages of `max_delay`.
    """

    IN_FULL: ClassVar = True

    max_messages: Int32 = DEFAULT_DIGEST_MESSAGES
    max_bytes: Int32 = DEFAULT_DIGEST_BYTES
    max_delay: timedelta = DEFAULT_DIGEST_DELAY


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitBreaker:
    """Opens once so many different messages have failed without a success in between, and stays open for so long;
    then one request is let through to try.
    """

    IN_FULL: ClassVar = True

    failure_threshold: Int32 = DEFAULT_FAILURE_THRESHOLD
    open_duration: timedelta = DEFAULT_OPEN_DURATION


class SealedSecret(str):
    """An encrypted secret, as it is stored, with the fingerprint of its clear text."""

    __slots__ = ("fingerprint",)

    fingerprint: str

    @classmethod
    def of(cls, text: str, fingerprint: str) -> "SealedSecret":
        secret = cls(text)
        secret.fingerprint = fingerprint
        return secret


@dataclass(frozen=True, slots=True, kw_only=True)
class PushOptions:
    """Extensions of a push subscription; the defaults do as Google's service does.

    `messages_per_second` is a token bucket that holds a second's worth; `max_outstanding_requests` caps the window;
    `webhook_secrets` ("whsec_" and base64) sign each request as Standard Webhooks says, each with a signature.  No
    answer has them, so in a change None means those that there are, and () means none any more.  As they are stored
    they may be encrypted (SealedSecret).
    `webhook_secret_fingerprints` are what answers show of them.  A request that was copied from an answer has them,
    too; the secrets that they belong to are there already.
    `urgent`: its messages go before those of the project's other subscriptions when pushes compete.
    """

    messages_per_second: float | None = None
    max_outstanding_requests: Int32 | None = None
    digest: Digest | None = None
    webhook_secrets: tuple[str, ...] | None = field(default=None, repr=False)
    webhook_secret_fingerprints: tuple[str, ...] = ()
    circuit_breaker: CircuitBreaker = CircuitBreaker()
    urgent: bool = False


def fingerprint(secret: str) -> str:
    """Returns what is shown of a secret: the first 8 hexadecimal digits of the SHA-256 of its text."""
    if isinstance(secret, SealedSecret):
        return secret.fingerprint
    return sha256(secret.encode()).hexdigest()[:8]


def query_of(endpoint: str) -> str:
    """Returns the query of an endpoint's URL, after the question mark: many have a token there."""
    return endpoint.partition("#")[0].partition("?")[2]


def without_query(endpoint: str) -> str:
    """An endpoint's URL as it is shown where it need not work: `https://example.com/push?…`."""
    query = query_of(endpoint)
    return endpoint.replace(query, "…", 1) if query else endpoint


PULL = PushConfig()
GOOGLES_OPTIONS = PushOptions()
