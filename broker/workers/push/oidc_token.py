"""STUB: the bearer tokens of pushes."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from broker.runtime.database_clock import DatabaseClock
from broker.store.database import Database


class TokenSigner:
    def __init__(self, database: Database, clock: DatabaseClock, *, issuer: str) -> None: ...

    async def refresh(self) -> None:
        """Periodic (REFRESH_SECONDS, and once before the first token): makes, loads and deletes keys."""
        raise NotImplementedError

    def token(self, service_account_email: str, audience: str, *, now: datetime) -> str:
        raise NotImplementedError

    def published_keys(self) -> Mapping[str, Any]:
        """The JWKS, for front/well_known.py."""
        raise NotImplementedError
