"""Holds all credentials of an installation in memory; requests never look them up in the database.

A credential that is new to a process costs one verification, and an invented one costs less.  When credentials of a
project change, those of that project are read again.  A thousand accounts with their keys take about 2 MB.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from broker.access.credentials.access_token_key_rows import AccessTokenKey, list_access_token_keys
from broker.access.credentials.account_rows import all_accounts, all_keys
from broker.access.credentials.api_key_rows import all_api_keys
from broker.access.principals.api_key import ApiKey
from broker.access.principals.service_account import MAX_KEYS, ServiceAccount, ServiceAccountKey
from broker.access.secrets.cells import token_key_cell
from broker.access.secrets.secrets import CannotOpen, Secrets
from broker.access.versions.access_changes import AccessChanges
from broker.db.driver.database import Database

_MAX_LOADED_KEYS = 1_000


@dataclass(frozen=True, slots=True)
class Credentials:
    """The credentials at one version.

    `keys`: (account's address, PEM) by the key's id; the newest of `token_keys` is last.  `key_ids`: the ids of
    each account's newest keys by its address, at most MAX_KEYS of them.
    """

    accounts: dict[str, ServiceAccount] = field(default_factory=dict)
    keys: dict[str, tuple[str, str]] = field(default_factory=dict)
    key_ids: dict[str, list[str]] = field(default_factory=dict)
    api_keys: dict[bytes, ApiKey] = field(default_factory=dict)
    token_keys: dict[str, AccessTokenKey] = field(default_factory=dict)

    def account_of(self, key_id: str) -> ServiceAccount | None:
        """Returns the account that a key belongs to."""
        found = self.keys.get(key_id)
        return None if found is None else self.accounts.get(found[0])

    def api_key(self, name: str) -> ApiKey | None:
        """Returns the API key of this resource name."""
        return next((key for key in self.api_keys.values() if key.name == name), None)


class CredentialDirectory:
    """`current` is replaced as a whole by `load`, which AccessVersion calls."""

    def __init__(self, database: Database, secrets: Secrets) -> None:
        """`secrets` decrypt the keys of access tokens; those that do not open are none."""
        self._database = database
        self._secrets = secrets
        self.current = Credentials()

    async def load(self, changes: AccessChanges) -> None:
        """Read the credentials of the projects in which one has changed.  Raises a BrokerError."""
        projects = changes.credentials
        if projects is not None and not projects:
            return
        before = Credentials() if projects is None else _without(self.current, projects)
        async with self._database.transaction() as connection:
            # Keys before accounts, so that whatever has a key also has its account.
            keys = await all_keys(connection, projects=projects)
            accounts = await all_accounts(connection, projects=projects)
            api_keys = await all_api_keys(connection, projects=projects)
            token_keys = await list_access_token_keys(connection) if projects is None else None
        self.current = Credentials(
            accounts=before.accounts | {account.email: account for account in accounts},
            keys=before.keys | {key.key_id: (key.email, key.public_key) for key in keys},
            key_ids=before.key_ids | _newest_by_account(keys),
            api_keys=before.api_keys | {key.digest: key for key in api_keys},
            token_keys=(
                before.token_keys if token_keys is None else {key.key_id: key for key in self._opened(token_keys)}
            ),
        )

    def _opened(self, keys: Iterable[AccessTokenKey]) -> Iterator[AccessTokenKey]:
        for key in keys:
            with suppress(CannotOpen):  # SecretKeeper tells of it
                yield replace(key, secret=self._secrets.open(key.secret, token_key_cell(key.key_id)))


def _newest_by_account(keys: Iterable[ServiceAccountKey]) -> dict[str, list[str]]:
    """The administrator's account alone may have more keys than MAX_KEYS."""
    found: dict[str, list[str]] = {}
    for key in sorted(keys, key=lambda key: key.created_at, reverse=True):
        ids = found.setdefault(key.email, [])
        if len(ids) < MAX_KEYS:
            ids.append(key.key_id)
    return found


def _without(current: Credentials, projects: frozenset[str]) -> Credentials:
    """Returns `current` without the credentials of the projects."""
    accounts = {email: one for email, one in current.accounts.items() if one.project not in projects}
    return Credentials(
        accounts=accounts,
        keys={key_id: key for key_id, key in current.keys.items() if key[0] in accounts},
        key_ids={email: ids for email, ids in current.key_ids.items() if email in accounts},
        api_keys={digest: key for digest, key in current.api_keys.items() if key.project not in projects},
        token_keys=current.token_keys,
    )


@lru_cache(_MAX_LOADED_KEYS)
def public_key(pem: str) -> RSAPublicKey:
    """A key for its PEM."""
    key = load_pem_public_key(pem.encode("ascii"))
    assert isinstance(key, RSAPublicKey)
    return key
