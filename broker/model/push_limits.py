"""The valid values of a push config and its extensions."""

import re
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Mapping
from datetime import timedelta
from ipaddress import IPv6Address
from urllib.parse import SplitResult, urlsplit

from broker.model.durations import format_duration
from broker.model.errors import InvalidArgument
from broker.model.push_config import CircuitBreaker, Digest, OidcToken, PushConfig, PushOptions, SealedSecret
from broker.model.refusals import refuse_nul

MAX_ENDPOINT_LENGTH = 2_048  # characters; what servers and proxies read of a URL
MAX_HOST_LENGTH = 253  # octets of a name in the DNS
MAX_ATTRIBUTES = 100  # as of a message, and so are the lengths
MAX_ATTRIBUTE_KEY_BYTES, MAX_ATTRIBUTE_VALUE_BYTES = 256, 1_024
MAX_EMAIL_LENGTH = 320
MAX_AUDIENCE_LENGTH = 2_048  # an endpoint is the default
# Values of the attribute x-goog-version.  Requests have the format of v1 with all of them: Google has shut down the
# API of v1beta1, but clients still set it.
ENDPOINT_VERSIONS = ("v1", "v1beta1", "v1beta2")

MIN_MESSAGES_PER_SECOND, MAX_MESSAGES_PER_SECOND = 0.001, 1_000_000
MAX_OUTSTANDING_REQUESTS = 10_000
MAX_DIGEST_MESSAGES = 1_000
MAX_DIGEST_BYTES = 10_000_000
MAX_DIGEST_DELAY = timedelta(hours=1)
MAX_WEBHOOK_SECRETS = 5
MIN_SECRET_BYTES, MAX_SECRET_BYTES = 24, 64  # the Standard Webhooks specification's
SECRET_PREFIX = "whsec_"  # noqa: S105
MAX_FAILURE_THRESHOLD = 10_000
MIN_OPEN_DURATION, MAX_OPEN_DURATION = timedelta(seconds=1), timedelta(hours=1)

_SHOWN = 200  # characters of a refused value in an error's message
_USER_INFO = re.compile(r"//[^/?#]*@")
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+")
_IPV6_NETLOC = re.compile(r"\[[^\]]*\](:[0-9]*)?")
_NOT_IN_A_HOST = re.compile(
    r"[\x00-\x2c\x2f\x3a-\x40\x5b-\x5e\x60\x7b-\x7f]"
)  # of ASCII only - . _ 0-9 A-Z a-z are


def check_push(config: PushConfig, options: PushOptions, *, exactly_once: bool, ordered: bool) -> None:
    """Raises InvalidArgument that names the field; a subscription's other fields are given for what excludes what.

    Options without an endpoint are fine: they are kept until there is one.
    """
    refuse_nul(config.attributes, "pushConfig.attributes")
    _check_attributes(config.attributes)
    if config.endpoint:
        check_endpoint(config.endpoint)
    elif (config.oidc_token or config.pubsub_wrapper or config.no_wrapper) is not None:
        raise InvalidArgument("Invalid push endpoint given (endpoint=): pushConfig needs a pushEndpoint.")
    if config.oidc_token is not None:
        _check_oidc_token(config.oidc_token)
    _check_options(options)
    if config.endpoint and exactly_once:
        raise InvalidArgument(
            "enableExactlyOnceDelivery cannot be used together with pushConfig.pushEndpoint: exactly-once delivery "
            "is for pull subscriptions only."
        )
    if options.digest is not None and ordered:
        raise InvalidArgument(
            "extensions.push.digest cannot be used together with enableMessageOrdering: of an ordering key one "
            "message is pushed at a time."
        )
    if options.digest is not None and config.no_wrapper is not None:
        raise InvalidArgument(
            "extensions.push.digest cannot be used together with pushConfig.noWrapper: only wrapped messages can "
            "share a request."
        )


def check_endpoint(endpoint: str) -> None:
    """Raises InvalidArgument unless it is an absolute http or https URL that messages can be posted to."""
    if len(endpoint) > MAX_ENDPOINT_LENGTH:
        raise _invalid_endpoint(endpoint, f"It is longer than {MAX_ENDPOINT_LENGTH} characters.")
    if not endpoint.isprintable() or " " in endpoint or "\\" in endpoint:
        raise _invalid_endpoint(endpoint, "It has white space, a control character or a backslash.")
    try:
        parts = urlsplit(endpoint)
        port = parts.port
    except ValueError:
        raise _invalid_endpoint(endpoint, "It is no URL.") from None
    if parts.scheme not in ("http", "https"):
        raise _invalid_endpoint(endpoint, "It must begin with http:// or https://.")
    if "@" in parts.netloc:
        raise _invalid_endpoint(
            endpoint, "It must not have a user or a password, which would be shown to all readers."
        )
    if port == 0 or not _is_host(parts):
        raise _invalid_endpoint(endpoint, "Its host or port is none.")


def _is_host(parts: SplitResult) -> bool:
    host = parts.hostname or ""
    try:
        if "[" in parts.netloc:
            IPv6Address(host)
            return _IPV6_NETLOC.fullmatch(parts.netloc) is not None
        name = host.encode("idna")  # no empty label, none longer than 63
    except (ValueError, UnicodeError):
        return False
    return bool(name) and len(name) <= MAX_HOST_LENGTH and not _NOT_IN_A_HOST.search(host)


def _invalid_endpoint(endpoint: str, why: str) -> InvalidArgument:
    shown = _USER_INFO.sub("//…@", endpoint)[:_SHOWN]
    return InvalidArgument(
        f"Invalid push endpoint given (endpoint={shown}). Refer to "
        f"https://cloud.google.com/pubsub/subscriber#create for more information. {why}"
    )


def _check_attributes(attributes: Mapping[str, str]) -> None:
    if len(attributes) > MAX_ATTRIBUTES:
        raise InvalidArgument(
            f"pushConfig.attributes has {len(attributes)} entries, the maximum is {MAX_ATTRIBUTES}."
        )
    for key, value in attributes.items():
        if not 1 <= len(key.encode()) <= MAX_ATTRIBUTE_KEY_BYTES or len(value.encode()) > MAX_ATTRIBUTE_VALUE_BYTES:
            raise InvalidArgument(
                f"pushConfig.attributes[{key[:_SHOWN]!r}] is out of bounds: a key has 1 to "
                f"{MAX_ATTRIBUTE_KEY_BYTES} bytes, a value at most {MAX_ATTRIBUTE_VALUE_BYTES}."
            )
    version = attributes.get("x-goog-version", ENDPOINT_VERSIONS[0])
    if version not in ENDPOINT_VERSIONS:
        raise InvalidArgument(f"Invalid push endpoint version given in push config (version={version[:_SHOWN]}).")


def _check_oidc_token(token: OidcToken) -> None:
    email = token.service_account_email
    if not _EMAIL.fullmatch(email) or not email.isprintable() or len(email) > MAX_EMAIL_LENGTH:
        raise InvalidArgument(
            "Invalid value at 'pushConfig.oidcToken.serviceAccountEmail': an e-mail address of at most "
            f"{MAX_EMAIL_LENGTH} characters is required, not {email[:_SHOWN]!r}."
        )
    if len(token.audience) > MAX_AUDIENCE_LENGTH or not token.audience.isprintable():
        raise InvalidArgument(
            f"Invalid value at 'pushConfig.oidcToken.audience': at most {MAX_AUDIENCE_LENGTH} printable characters "
            f"are possible, not {token.audience[:_SHOWN]!r}."
        )


def _check_options(options: PushOptions) -> None:
    rate, outstanding = options.messages_per_second, options.max_outstanding_requests
    if rate is not None and not MIN_MESSAGES_PER_SECOND <= rate <= MAX_MESSAGES_PER_SECOND:
        raise _out_of_bounds("messagesPerSecond", rate, f"{MIN_MESSAGES_PER_SECOND} and {MAX_MESSAGES_PER_SECOND}")
    if outstanding is not None and not 1 <= outstanding <= MAX_OUTSTANDING_REQUESTS:
        raise _out_of_bounds("maxOutstandingRequests", outstanding, f"1 and {MAX_OUTSTANDING_REQUESTS}")
    if options.digest is not None:
        _check_digest(options.digest)
    _check_circuit_breaker(options.circuit_breaker)
    _check_secrets(options)


def _check_secrets(options: PushOptions) -> None:
    secrets = options.webhook_secrets or ()
    if options.webhook_secrets is None and options.webhook_secret_fingerprints:
        raise InvalidArgument(
            "extensions.push.webhookSecretFingerprints is of another subscription's secrets, which no answer has: "
            "give webhookSecrets (or neither, and requests are not signed)."
        )
    if len(secrets) > MAX_WEBHOOK_SECRETS:
        raise InvalidArgument(
            f"extensions.push.webhookSecrets has {len(secrets)} entries, the maximum is {MAX_WEBHOOK_SECRETS}."
        )
    for index, secret in enumerate(secrets):
        # The value is not shown: it may be a real secret with a slip, which must not get into a log.
        if not isinstance(secret, SealedSecret) and not _is_secret(secret):
            raise InvalidArgument(
                f"Invalid value at 'extensions.push.webhookSecrets[{index}]': it must be \"{SECRET_PREFIX}\" and "
                f"the base64 of {MIN_SECRET_BYTES} to {MAX_SECRET_BYTES} bytes."
            )


def _check_digest(digest: Digest) -> None:
    if not 1 <= digest.max_messages <= MAX_DIGEST_MESSAGES:
        raise _out_of_bounds("digest.maxMessages", digest.max_messages, f"1 and {MAX_DIGEST_MESSAGES}")
    if not 1 <= digest.max_bytes <= MAX_DIGEST_BYTES:
        raise _out_of_bounds("digest.maxBytes", digest.max_bytes, f"1 and {MAX_DIGEST_BYTES}")
    if not timedelta(0) < digest.max_delay <= MAX_DIGEST_DELAY:
        seconds = f"{format_duration(digest.max_delay)}"
        raise _out_of_bounds("digest.maxDelay", seconds, f"more than 0s and {format_duration(MAX_DIGEST_DELAY)}")


def _check_circuit_breaker(breaker: CircuitBreaker) -> None:
    if not 1 <= breaker.failure_threshold <= MAX_FAILURE_THRESHOLD:
        bounds = f"1 and {MAX_FAILURE_THRESHOLD}"
        raise _out_of_bounds("circuitBreaker.failureThreshold", breaker.failure_threshold, bounds)
    if not MIN_OPEN_DURATION <= breaker.open_duration <= MAX_OPEN_DURATION:
        bounds = f"{format_duration(MIN_OPEN_DURATION)} and {format_duration(MAX_OPEN_DURATION)}"
        given = f"{format_duration(breaker.open_duration)}"
        raise _out_of_bounds("circuitBreaker.openDuration", given, bounds)


def _out_of_bounds(field: str, value: object, bounds: str) -> InvalidArgument:
    return InvalidArgument(
        f"The value for extensions.push.{field} is out of bounds. You passed {value} in the request, but the value "
        f"must be between {bounds}."
    )


def _is_secret(secret: str) -> bool:
    try:
        key = b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except (Base64Error, ValueError):
        return False
    return secret.startswith(SECRET_PREFIX) and MIN_SECRET_BYTES <= len(key) <= MAX_SECRET_BYTES
