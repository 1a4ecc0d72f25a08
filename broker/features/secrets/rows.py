"""Reads and replaces all secrets in the database, for encrypting them again.

A secret is replaced only if it has not changed since it was read, so that a concurrent change is never undone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import LargeBinary, Text, cast, delete, func, literal, select, text, update
from sqlalchemy.dialects.postgresql import JSONB

from broker.core.catalog.columns import EXTENSIONS, FINGERPRINTS, SECRETS
from broker.db.driver.database import ResourceConnection
from broker.db.schema.tables import JsonPath, access_token_keys, signing_keys, subscriptions

WEBHOOKS, SIGNING_KEYS, TOKEN_KEYS = "subscriptions", "signing_keys", "access_token_keys"
_OTHERS = "$.extensions.push.webhookSecrets[*] ? (!(@ starts with $prefix))"
_HAS_SECRETS = text("subscriptions.settings #> '{extensions,push}' ? 'webhookSecrets'")  # as the index of them says
_PUSH = [EXTENSIONS, "push"]
_SECRETS = subscriptions.c.settings[EXTENSIONS]["push"][SECRETS]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSecrets:
    """The secrets of one row of `table`, which is called `row`."""

    table: str
    row: str
    stored: tuple[bytes, ...]


async def list_secrets_unlike(connection: ResourceConnection, *, prefix: str) -> list[StoredSecrets]:
    """The rows with a secret that does not begin with `prefix`."""
    found = []
    others = func.jsonb_path_exists(
        subscriptions.c.settings,
        cast(_OTHERS, JsonPath),
        func.jsonb_build_object("prefix", literal(prefix, Text)),
    )
    for name, secrets in await connection.execute(
        select(subscriptions.c.name, _SECRETS).where(_HAS_SECRETS, others)
    ):
        found.append(StoredSecrets(table=WEBHOOKS, row=name, stored=tuple(secret.encode() for secret in secrets)))
    unlike = ~func.starts_with(signing_keys.c.private_key, literal(prefix, Text))
    for key_id, pem in await connection.execute(
        select(signing_keys.c.key_id, signing_keys.c.private_key).where(unlike)
    ):
        found.append(StoredSecrets(table=SIGNING_KEYS, row=key_id, stored=(pem.encode(),)))
    begins = func.substring(access_token_keys.c.secret, 1, len(prefix)) != literal(prefix.encode(), LargeBinary)
    for key_id, secret in await connection.execute(
        select(access_token_keys.c.key_id, access_token_keys.c.secret).where(begins)
    ):
        found.append(StoredSecrets(table=TOKEN_KEYS, row=key_id, stored=(bytes(secret),)))
    return found


async def replace_secrets(
    connection: ResourceConnection, *, old: StoredSecrets, new: Sequence[bytes], fingerprints: Sequence[str]
) -> bool:
    """False if they are not `old` any more.  `fingerprints` are of a webhook's secrets that are
    encrypted.
    """
    match old.table:
        case "subscriptions":
            texts = [stored.decode() for stored in new]
            before = [stored.decode() for stored in old.stored]
            settings: Any = subscriptions.c.settings
            settings = func.jsonb_set(settings, [*_PUSH, SECRETS], literal(texts, JSONB))
            settings = func.jsonb_set(settings, [*_PUSH, FINGERPRINTS], literal(list(fingerprints), JSONB))
            statement = (
                update(subscriptions)
                .where(subscriptions.c.name == old.row, literal(before, JSONB) == _SECRETS)
                .values(settings=settings)
            )
        case "signing_keys":
            [was], [is_now] = old.stored, new
            statement = (
                update(signing_keys)
                .where(signing_keys.c.key_id == old.row, signing_keys.c.private_key == was.decode())
                .values(private_key=is_now.decode())
            )
        case _:
            [was], [is_now] = old.stored, new
            statement = (
                update(access_token_keys)
                .where(access_token_keys.c.key_id == old.row, access_token_keys.c.secret == was)
                .values(secret=is_now)
            )
    return (await connection.execute(statement)).rowcount == 1


async def delete_keys(connection: ResourceConnection, *, keys: Sequence[StoredSecrets]) -> None:
    """Delete keys that sign: those of pushes' tokens, and of access tokens.  Webhooks' secrets stay."""
    for table in (signing_keys, access_token_keys):
        rows = [key.row for key in keys if key.table == table.name]
        await connection.execute(delete(table).where(table.c.key_id.in_(rows)))
