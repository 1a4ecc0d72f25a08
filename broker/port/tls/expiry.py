"""When a certificate expires, and when that is worth a word."""

from datetime import UTC, datetime, timedelta

STAGES = (1, 7, 30)  # days before


def expires(pem: bytes) -> datetime:
    """The end of the first certificate's validity.  Raises ValueError."""
    from cryptography import x509  # a few MB, which a broker without TLS does not need in its parent

    return x509.load_pem_x509_certificate(pem).not_valid_after_utc


def is_self_signed(pem: bytes) -> bool:
    """Whether the first certificate is its own authority.  Raises ValueError."""
    from cryptography import x509

    certificate = x509.load_pem_x509_certificate(pem)
    return certificate.issuer == certificate.subject


def stage_of(expiry: datetime, now: datetime) -> int | None:
    """0: it has expired; else the least of STAGES that is more than the days left; None: there is time."""
    if now >= expiry:
        return 0
    return next((days for days in STAGES if expiry - now < timedelta(days=days)), None)


def in_words(expiry: datetime) -> str:
    """As the log says it."""
    return f"{expiry.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
