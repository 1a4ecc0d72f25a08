"""Creates the first service account key of a database, which has every permission."""

import json
from collections.abc import Callable
from datetime import datetime

from broker.access.credentials import account_rows as service_accounts
from broker.access.credentials.key_pairs import KeyPair, make_unique_id
from broker.access.policies.policy_rows import write_policy
from broker.access.principals.permissions import OWNER
from broker.access.principals.policy import ABOVE_PROJECTS, Binding, Policy, make_etag
from broker.access.principals.service_account import (
    ADMIN_ID,
    ADMIN_PROJECT,
    ServiceAccount,
    ServiceAccountKey,
    email_of,
    key_file,
)
from broker.access.versions.version_rows import raise_access_version
from broker.db.driver.database import Database

ADMIN_EMAIL = email_of(ADMIN_PROJECT, ADMIN_ID)


async def has_admin(database: Database) -> bool:
    """Whether the account that owns everything exists.  Raises a BrokerError."""
    async with database.transaction() as connection:
        return await service_accounts.find_service_account(connection, email=ADMIN_EMAIL) is not None


async def make_admin_key(
    database: Database, *, pair: KeyPair, base_url: str, now: datetime, write: Callable[[str], None]
) -> None:
    """Make `pair` a key of the account that owns everything, and make that account if need be.

    `write` gets the text of the key's file, before anything is committed: what cannot be written is no key.  Raises
    a BrokerError, and what `write` raises.
    """
    async with database.transaction() as connection:
        account = await service_accounts.find_service_account(connection, email=ADMIN_EMAIL, lock=True)
        if account is None:
            account = ServiceAccount(
                email=ADMIN_EMAIL,
                project=ADMIN_PROJECT,
                unique_id=make_unique_id(),
                display_name="The broker's administrator",
                description="Owns everything, by a policy above projects.",
                disabled=False,
                created_at=now,
            )
            await service_accounts.insert_service_account(connection, account=account)
        await service_accounts.set_disabled(connection, email=ADMIN_EMAIL, disabled=False)
        key = ServiceAccountKey(key_id=pair.key_id, email=ADMIN_EMAIL, public_key=pair.public_key, created_at=now)
        await service_accounts.insert_key(connection, key=key)
        owner = Policy((Binding(OWNER, frozenset({account.member})),), make_etag())
        await write_policy(connection, resource=ABOVE_PROJECTS, policy=owner)
        await raise_access_version(connection, schema=database.schema, projects=[ABOVE_PROJECTS], credentials=True)
        file = key_file(account, key_id=pair.key_id, private_key=pair.private_key, base_url=base_url)
        write(json.dumps(file, indent=2) + "\n")
