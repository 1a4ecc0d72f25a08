"""Checks of settings that are text.  Each raises ValueError; its message, if it has one, adds the detail."""

from ipaddress import IPv6Address
from pathlib import Path
from urllib.parse import urlsplit

from broker.access.principals.certificate_principals import CertificatePrincipals, parse_certificate_principals
from broker.access.principals.oidc_issuer import OidcIssuer, parse_issuers
from broker.access.secrets.keys import read_keys
from broker.core.context.storage import parse_size
from broker.core.pushing.client.address_policy import parse_networks
from broker.core.pushing.client.tls_context import make_tls_context
from broker.features.quotas.quota import parse_limits, parse_rates
from broker.model.audiences import split_list
from broker.model.errors import BrokerError, os_reason
from broker.model.names import check_project
from broker.net.tls.material import check_certificates, check_key

AUTO = "auto"


def check_size(size: str) -> None:
    parse_size(size)


def check_size_or_auto(size: str) -> None:
    if size != AUTO:
        parse_size(size)


def check_host(host: str) -> None:
    if any(character.isspace() or character in "/?#@" for character in host):
        raise ValueError
    if ":" in host:
        try:
            IPv6Address(host)
        except ValueError:
            raise ValueError("the port is a setting of its own") from None


def check_issuer(issuer: str) -> None:
    parts = urlsplit(issuer)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.query or parts.fragment:
        raise ValueError


def check_networks(networks: str) -> None:
    parse_networks(networks)


def read_oidc_issuers(path: str) -> tuple[OidcIssuer, ...]:
    """Reads the issuers of a file ("": none).  Raises ValueError."""
    return parse_issuers(_content(path).decode()) if path else ()


def check_oidc_issuers(path: str) -> None:
    read_oidc_issuers(path)


def check_quotas(limits: str) -> None:
    parse_limits(limits)


def check_principal_quotas(limits: str) -> None:
    parse_rates(limits)


def read_certificate_principals(path: str) -> CertificatePrincipals:
    """Reads the certificate principals of a file ("": none).  Raises ValueError."""
    return parse_certificate_principals(_content(path).decode()) if path else {}


def check_certificate_principals(path: str) -> None:
    read_certificate_principals(path)


def check_ca_file(path: str) -> None:
    try:
        make_tls_context(path)
    except OSError as error:  # including OpenSSL's errors
        raise ValueError(os_reason(error)) from None


def check_certificate_file(path: str) -> None:
    check_certificates(_content(path))


def check_key_file(path: str) -> None:
    check_key(_content(path))


def check_secrets_key_file(path: str) -> None:
    try:
        read_keys(Path(path))
    except OSError as error:
        raise ValueError(os_reason(error)) from None


def check_new_file(path: str) -> None:
    """Checks the name of a file that is created when it is first written."""
    directory = Path(path).absolute().parent
    if not directory.is_dir():
        raise ValueError(f"there is no directory {directory}")


def check_declarations(files: str) -> None:
    """Checks that the files can be read.  Their content is checked when it is applied (cli/server/applier.py)."""
    for path in split_list(files):
        _content(path)


def check_project_id(project: str) -> None:
    try:
        check_project(f"projects/{project.removeprefix('projects/')}")
    except BrokerError as error:
        raise ValueError(error.message) from None


def check_access_log(where: str) -> None:
    """Checks the name of a file, or one of two words."""
    if where not in ("off", "on"):
        check_new_file(where)


def check_password_file(path: str) -> None:
    read_password(path)


def read_password(path: str) -> str:
    """The line of a file, without the end of the line and a byte order mark.  Raises ValueError."""
    try:
        password = _content(path).decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError:
        raise ValueError("it is no text in UTF-8") from None
    if not password:
        raise ValueError("it is empty")
    if any(character in password for character in "\r\n\0"):
        raise ValueError("it has more than one line")
    if password != password.strip():
        raise ValueError(
            "it begins or ends with white space (a password that does so has to be in the URL, as %20)"
        )
    return password


def _content(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ValueError(os_reason(error)) from None
