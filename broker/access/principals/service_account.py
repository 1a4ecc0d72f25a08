"""Service accounts and their keys, in the shape of Google's IAM.

https://cloud.google.com/iam/docs/reference/rest/v1/projects.serviceAccounts describes the resources and their
limits.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from broker.model.errors import InvalidArgument
from broker.model.names import leaf

DOMAIN = "iam.broker.internal"  # of the e-mail addresses; nobody else speaks for it
RESERVED_PROJECT = "gcp-sa-pubsub"  # has the service agents of all projects, and no accounts that anybody makes
ANY_PROJECT = "projects/-"  # what clients write for the project of an account that they know by its address

MAX_ACCOUNTS = 100  # of a project
MAX_KEYS = 10  # of an account
MAX_DISPLAY_NAME, MAX_DESCRIPTION = 100, 256  # characters

# The account that owns everything: its project is an ordinary one, to which nobody else is given a right.
ADMIN_PROJECT, ADMIN_ID = "projects/broker-system", "broker-admin"

_ACCOUNT_ID = re.compile(r"[a-z][a-z0-9-]{4,28}[a-z0-9]")
_PROJECT = re.compile(r"(?:(?P<domain>[a-z0-9-]+(?:\.[a-z0-9-]+)+):)?(?P<id>[A-Za-z0-9_-]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAccount:
    """`project` is "projects/p"; `unique_id` is never used again, an address may be."""

    email: str
    project: str
    unique_id: str
    display_name: str
    description: str
    disabled: bool
    created_at: datetime

    @property
    def name(self) -> str:
        return f"{self.project}/serviceAccounts/{self.email}"

    @property
    def member(self) -> str:
        """The member as policies name the account."""
        return f"serviceAccount:{self.email}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAccountKey:
    """`public_key` is PEM (SubjectPublicKeyInfo); the private half is only in the file that its creation gave."""

    key_id: str
    email: str
    public_key: str
    created_at: datetime


def email_of(project: str, account_id: str) -> str:
    """The address of a new account.  Raises InvalidArgument for ids that cannot be part of an address.

    Addresses are lowercase, since policies compare them without regard to case.  So two projects whose ids differ
    in case alone cannot both have an account of one id: the second one exists already.
    """
    if not _ACCOUNT_ID.fullmatch(account_id):
        raise InvalidArgument(
            f"account_id must have 6 to 30 lowercase letters, digits and hyphens, begin with a letter and not end "
            f"with a hyphen (account_id={account_id[:100]})."
        )
    match = _PROJECT.fullmatch(leaf(project))
    if match is None:
        raise InvalidArgument(
            f"A project whose id has other characters than letters, digits, _ and - cannot have service accounts "
            f"(project={leaf(project)})."
        )
    within = f"{match['id']}.{match['domain']}" if match["domain"] else match["id"]
    if within.lower() == RESERVED_PROJECT:
        raise InvalidArgument(
            f"The project {RESERVED_PROJECT} is reserved for the service agents of all projects (project={within})."
        )
    return f"{account_id}@{within}.{DOMAIN}".lower()


def project_of_address(email: str) -> str:
    """Returns the project ("projects/p") in the address of an account of the broker, as `email_of` made it."""
    return f"projects/{email.partition('@')[2].removesuffix(f'.{DOMAIN}')}"


def is_own_address(email: str) -> bool:
    """Whether an address is in the broker's own domain, where it knows which accounts exist."""
    return email.lower().endswith(f".{DOMAIN}")


def check_texts(display_name: str, description: str) -> None:
    """Raises InvalidArgument for texts that are too long."""
    for field, text, most in (
        ("display_name", display_name, MAX_DISPLAY_NAME),
        ("description", description, MAX_DESCRIPTION),
    ):
        if len(text) > most or "\0" in text:
            raise InvalidArgument(
                f"{field} may have at most {most} characters, none of them U+0000 (it has {len(text)})."
            )


def key_file(account: ServiceAccount, *, key_id: str, private_key: str, base_url: str) -> Mapping[str, Any]:
    """Returns the key file that Google's libraries read as GOOGLE_APPLICATION_CREDENTIALS.

    `private_key` is PEM (PKCS 8).
    """
    return {
        "type": "service_account",
        "project_id": leaf(account.project),
        "private_key_id": key_id,
        "private_key": private_key,
        "client_email": account.email,
        "client_id": account.unique_id,
        "auth_uri": f"{base_url}/auth",
        "token_uri": f"{base_url}/token",
        "auth_provider_x509_cert_url": f"{base_url}/.well-known/jwks.json",
        "universe_domain": "googleapis.com",  # the one that the libraries take without being told of another
    }
