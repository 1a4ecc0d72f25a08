"""Brokers that ask who calls, over TLS: what callers show, and what an administrator changes of it meanwhile."""

import asyncio
import json
import ssl
import time
from base64 import b64decode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import jwt
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from tests.fixtures.tls import make_pair, trusting

Json = dict[str, Any]

DENIED = frozenset({401, 403})  # what callers may be told while keys and roles change
ROLE = "roles/pubsub.admin"
_AUDIENCE = "https://pubsub.googleapis.com/"
_TOKEN_SECONDS, _FRESH_SECONDS = 3600, 1800
_PATIENCE_SECONDS = 200.0  # longer than any faults in a row keep brokers from serving


class Guard:
    """One for a World.  The callers are a service account with one key at a time."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        authority = make_pair([], is_authority=True)
        self.authority = authority.certificate
        certificate, key = make_pair(issuer=authority).write(directory, "server")
        self.options: Sequence[str] = (
            *("--auth", "required", "--tls-certificate", certificate, "--tls-key", key),
            *("--push-private-addresses", "allow"),
        )
        self.tls: ssl.SSLContext = trusting(authority.certificate)
        self.admin_key: Path | None = None
        self.urls: Sequence[str] = ()
        self._keys: dict[str, tuple[Any, Json]] = {}  # loaded; by their ids
        self._tokens: dict[str, tuple[float, str]] = {}
        self._account = self._key_name = self._project = ""
        self._key: Json = {}
        self._changing = asyncio.Lock()  # one change at a time

    def headers(self) -> Mapping[str, str]:
        """What the callers of the workload show now."""
        return self._bearer(self._key)

    async def admit(self, project: str) -> None:
        """Give the callers an account, a key, and their role on the project."""
        self._project = project
        made = await self._do("POST", f"{project}/serviceAccounts", {"accountId": "workload"}, fine=[409])
        email = made.get("email") or f"workload@{project.partition('/')[2]}.iam.broker.internal"
        self._account = f"{project}/serviceAccounts/{email}"
        await self.rotate_key()
        await self.set_role(given=True)

    async def rotate_key(self) -> None:
        """Another key; the one before is gone then, and what is open with it ends."""
        async with self._changing:
            made = await self._do("POST", f"{self._account}/keys", {})
            old, self._key_name = self._key_name, str(made["name"])
            self._key = json.loads(b64decode(made["privateKeyData"]))
            if old.startswith(self._account):
                await self._do("DELETE", old, fine=[404])

    async def set_role(self, *, given: bool) -> None:
        """Whether the callers have their role on the project."""
        member = f"serviceAccount:{self._account.rpartition('/')[2]}"
        bindings = [{"role": ROLE, "members": [member]}] if given else []
        async with self._changing:
            await self._do("POST", f"{self._project}:setIamPolicy", {"policy": {"bindings": bindings}})

    async def _do(self, method: str, path: str, body: Json | None = None, *, fine: Sequence[int] = ()) -> Json:
        """By the administrator, until it is done: a try without an answer may have been."""
        assert self.admin_key is not None
        admin = json.loads(self.admin_key.read_text())
        until = time.monotonic() + _PATIENCE_SECONDS
        said = ""
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=8)) as session:
            while time.monotonic() < until:
                try:
                    async with session.request(
                        method, f"{self.urls[0]}/v1/{path}", json=body, headers=self._bearer(admin), ssl=self.tls
                    ) as response:
                        answer: Json = await response.json()
                        if response.status == 200 or response.status in fine:
                            return answer
                        assert response.status >= 500 or response.status == 409, answer
                        said = str(answer)
                except (aiohttp.ClientError, ConnectionError, TimeoutError) as error:
                    said = repr(error)
                await asyncio.sleep(0.1)
        raise AssertionError(f"{method} {path}: {said}")

    def _bearer(self, key: Json) -> Mapping[str, str]:
        if not key:
            return {}
        key_id, now = key["private_key_id"], time.time()
        until, token = self._tokens.get(key_id, (0.0, ""))
        if until < now:
            if key_id not in self._keys:
                self._keys[key_id] = load_pem_private_key(key["private_key"].encode(), None), key
            private, email = self._keys[key_id][0], key["client_email"]
            claims = {
                "iss": email,
                "sub": email,
                "aud": _AUDIENCE,
                "iat": int(now),
                "exp": int(now) + _TOKEN_SECONDS,
            }
            token = jwt.encode(claims, private, algorithm="RS256", headers={"kid": key_id})
            self._tokens[key_id] = now + _FRESH_SECONDS, token
        return {"Authorization": f"Bearer {token}"}
