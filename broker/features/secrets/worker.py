"""Encrypts secrets that are stored in clear text, because they were stored before there was a key.

Only `broker secrets rotate` changes the key of secrets that are encrypted already.
"""

import logging
from collections.abc import Sequence

from broker.access.secrets.cells import CELLS
from broker.access.secrets.secrets import SEALED, CannotOpen, Secrets, is_sealed, key_id_of
from broker.db.driver.database import Database
from broker.features.secrets.rows import WEBHOOKS, StoredSecrets, list_secrets_unlike, replace_secrets
from broker.model.push_config import fingerprint
from broker.observability.state_changes import StateChanges

KEEPING_SECONDS = 60.0

_KEYS, _FILE = "keys of secrets", "files of keys"
_BATCH = 100


class SecretKeeper:
    """`run_once` before anything reads secrets, and then about every KEEPING_SECONDS."""

    def __init__(self, database: Database, secrets: Secrets, states: StateChanges) -> None:
        self._database = database
        self._secrets = secrets
        self._states = states
        self._absent: set[str] = set()

    async def run_once(self) -> int:
        """Encrypts what is in clear text, if there is a key.  Returns how many secrets were."""
        if why := self._secrets.reload():
            self._states.begins(_FILE, "", "the keys of secrets cannot be read anew, and stay as they were", why)
        else:
            self._states.ends(_FILE, "", "the keys of secrets can be read again")
        async with self._database.transaction() as connection:
            found = await list_secrets_unlike(connection, prefix=f"{SEALED}{self._secrets.key_id}:")
        self._report_absent(found)
        self._secrets.is_sealing = self._secrets.has_key
        if not self._secrets.is_sealing:
            return 0
        clear = [row for row in found if not all(map(is_sealed, row.stored))]
        done, _ = await seal_anew(self._database, self._secrets, clear)
        if done:
            what = "1 secret in the database was" if done == 1 else f"{done:,} secrets in the database were"
            self._states.report("secrets", f"{what} in clear text; now encrypted (key {self._secrets.key_id})")
        return done

    def _report_absent(self, found: Sequence[StoredSecrets]) -> None:
        """Reports missing keys with which secrets are encrypted."""
        used = {key_id_of(stored) for row in found for stored in row.stored if is_sealed(stored)}
        absent = used - self._secrets.key_ids
        for key_id in absent:
            what = "secrets in the database cannot be decrypted, and pushes that need them wait"
            self._states.begins(_KEYS, key_id, what, self._secrets.why_absent(key_id), level=logging.ERROR)
        for key_id in self._absent - absent:
            self._states.ends(_KEYS, key_id, f"no secret lacks the key {key_id} any more")
        self._absent = absent


async def seal_anew(
    database: Database, secrets: Secrets, rows: Sequence[StoredSecrets]
) -> tuple[int, list[StoredSecrets]]:
    """Encrypt with the key that encrypts now; or, if `secrets` is not sealing, write in clear text.

    Returns how many secrets were, and the rows that cannot be decrypted, which stay; so does a row that has changed
    meanwhile.  Raises a BrokerError; what was done so far stays done.
    """
    done, unreadable = 0, []
    for start in range(0, len(rows), _BATCH):
        async with database.transaction() as connection:
            for row in rows[start : start + _BATCH]:
                cell = CELLS[row.table](row.row)
                try:
                    clear = [secrets.open(stored, cell) for stored in row.stored]
                except CannotOpen:
                    unreadable.append(row)
                    continue
                new = [secrets.seal(secret, cell) for secret in clear]
                shown = [fingerprint(secret.decode()) for secret in clear] if row.table == WEBHOOKS else []
                shown = shown if secrets.is_sealing else []
                if await replace_secrets(connection, old=row, new=new, fingerprints=shown):
                    done += len(new)
    return done, unreadable
