"""Reads the validity period of a certificate from its PEM."""

from datetime import UTC, datetime

from broker.model.certificate_validity import Validity


def read_validity(pem: bytes) -> Validity:
    """Reads the validity of the first certificate.  Raises ValueError."""
    from cryptography import x509  # a few MB, which a broker without TLS does not need in its parent

    certificate = x509.load_pem_x509_certificate(pem)
    return Validity(certificate.not_valid_before_utc, certificate.not_valid_after_utc)


def is_self_signed(pem: bytes) -> bool:
    """Whether the first certificate is its own authority.  Raises ValueError."""
    from cryptography import x509

    certificate = x509.load_pem_x509_certificate(pem)
    return certificate.issuer == certificate.subject


def in_words(expiry: datetime) -> str:
    """Formats an expiration time for the log."""
    return f"{expiry.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
