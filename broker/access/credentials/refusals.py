"""The errors for callers whose credential is not accepted, with Google's messages and reasons.

https://cloud.google.com/docs/authentication/troubleshoot-adc and the reasons of google.api.ErrorReason.
"""

from broker.model.errors import Unauthenticated, Unavailable

_ERROR_INFO = "type.googleapis.com/google.rpc.ErrorInfo"
_EXPECTED = "Expected OAuth 2 access token, login cookie or other valid authentication credential."


def refusal(reason: str, why: str) -> Unauthenticated:
    """`reason` is one of google.api.ErrorReason; `why` a sentence without anything of the credential itself."""
    info = {
        "@type": _ERROR_INFO,
        "reason": reason,
        "domain": "googleapis.com",
        "metadata": {"service": "pubsub.googleapis.com"},
    }
    return Unauthenticated(why, details=[info])


def missing() -> Unauthenticated:
    """Returns the error for a call without a credential that needs one."""
    return refusal(
        "CREDENTIALS_MISSING",
        f"Request is missing required authentication credential. {_EXPECTED}",
    )


def invalid(why: str) -> Unauthenticated:
    """A token that proves nothing; `why` completes the sentence "the token …"."""
    return refusal(
        "ACCESS_TOKEN_TYPE_UNSUPPORTED",
        f"Request had invalid authentication credentials: the token {why}. {_EXPECTED}",
    )


def expired() -> Unauthenticated:
    return refusal(
        "ACCESS_TOKEN_EXPIRED",
        f"Request had invalid authentication credentials: the token has expired. {_EXPECTED}",
    )


def expired_meanwhile() -> Unavailable:
    """Returns the error for a call that is still open after its credential has expired."""
    return Unavailable("The credential that the call began with has expired; call again with a new one.")


def withdrawn_meanwhile() -> Unavailable:
    """Returns the error for a call that is still open after its issuer has withdrawn the key of its credential.

    It is Unavailable, since a new token may be signed by another key.
    """
    return Unavailable("The issuer has withdrawn the key of the credential; call again with a new one.")


def revoked() -> Unauthenticated:
    """Returns the error for a call that is still open after its credential was revoked."""
    return refusal(
        "ACCESS_TOKEN_REVOKED",
        f"Request had invalid authentication credentials: the credential was revoked. {_EXPECTED}",
    )


def session_ended() -> Unauthenticated:
    """Returns the error for a session of the console that has ended, or that never was."""
    return refusal("SESSION_EXPIRED", "The session of the console has ended. Sign in again.")


def link_invalid() -> Unauthenticated:
    """Returns the error for a link that signs in no more, or that never did."""
    return refusal("LOGIN_REQUIRED", "The link has expired or was used before. Ask for a new one.")


def certificate(why: str) -> Unauthenticated:
    """Returns the error for a call with no credential but a client's certificate.

    `why` completes the sentence "the client's certificate …".
    """
    return refusal(
        "CREDENTIALS_MISSING",
        f"Request is missing required authentication credential: the client's certificate {why}. {_EXPECTED}",
    )


def account_disabled() -> Unauthenticated:
    return refusal(
        "ACCOUNT_STATE_INVALID",
        f"Request had invalid authentication credentials: the service account is disabled. {_EXPECTED}",
    )


def api_key_invalid() -> Unauthenticated:
    return refusal("API_KEY_INVALID", "API key not valid. Please pass a valid API key.")
