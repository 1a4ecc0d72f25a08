"""Builds all parts of access in a process: the version, the credentials, authentication and authorization."""

from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import datetime

from broker.access.credentials.access_token_key_rows import delete_access_token_keys, insert_access_token_key
from broker.access.credentials.authenticator import Authenticator
from broker.access.credentials.certificates import Certificates
from broker.access.credentials.code_flow import CodeFlow
from broker.access.credentials.directory import CredentialDirectory
from broker.access.credentials.issuer_tokens import IssuerTokens
from broker.access.credentials.service_account_tokens import SIGNS_FOR, ServiceAccountTokens, make_token_key
from broker.access.policies.authorizer import Authorizer
from broker.access.policies.service_agents import ServiceAgents
from broker.access.principals.certificate_principals import CertificatePrincipals
from broker.access.principals.oidc_issuer import OidcIssuer
from broker.access.principals.policy import ABOVE_PROJECTS
from broker.access.secrets.cells import token_key_cell
from broker.access.secrets.secrets import Secrets
from broker.access.sessions.sessions import Sessions
from broker.access.share_links.holders import Holders
from broker.access.versions.version import AccessVersion
from broker.access.versions.version_rows import raise_access_version
from broker.db.driver.database import Database
from broker.observability.state_changes import StateChanges

ROTATION_SECONDS = 3600.0  # between two checks whether access tokens need a new key


class Access:
    """Authentication and authorization of a process.

    Call `start` first; `version.run` and `rotate` are workers.
    """

    def __init__(
        self,
        database: Database,
        *,
        secrets: Secrets,
        address: str,
        audiences: Collection[str],
        issuers: Collection[OidcIssuer] = (),
        certificate_principals: CertificatePrincipals,
        now: Callable[[], datetime],
        states: StateChanges,
    ) -> None:
        """`secrets` encrypt the keys of access tokens.  `address`: the URL that the broker is reached at.
        `audiences`: URLs that it is addressed by.
        `issuers`: whose tokens are taken, too.  `certificate_principals`: whom clients' certificates are of.
        `now`: the database's time.  `states` hears of issuers whose keys cannot be read.
        """
        self._database = database
        self._now = now
        self._secrets = secrets
        self.version = AccessVersion(database)
        self.directory = CredentialDirectory(database, secrets)
        self.version.before_change(self.directory.load)
        self._accounts = ServiceAccountTokens(self.directory, audiences=audiences)
        self.authorizer = Authorizer(database, self.version, self.directory)
        self.issuers = IssuerTokens(issuers, states)
        self.agents = ServiceAgents(self.authorizer)
        self.authenticator = Authenticator(
            self.version,
            self.directory,
            self._accounts,
            self.issuers,
            Certificates(self.directory, certificate_principals),
            now=now,
        )
        self.sessions = Sessions(database, self.authenticator, now=now)
        self.code_flow = CodeFlow(issuers, self.issuers, address=address, now=now)
        self.link_holders = Holders(database, self.directory, self.authorizer, self.version, now=now)

    async def start(self) -> None:
        """Raises a BrokerError."""
        await self.version.refresh()
        await self.rotate()

    async def rotate(self) -> None:
        """Make a new key for access tokens when the last one has signed for long enough.  Raises a BrokerError."""
        now, keys = self._now(), list(self.directory.current.token_keys.values())
        if keys and keys[-1].created_at > now - SIGNS_FOR:
            return
        key = make_token_key(now)
        key = replace(key, secret=self._secrets.seal(key.secret, token_key_cell(key.key_id)))
        async with self._database.transaction() as connection:
            await insert_access_token_key(connection, key=key)
            await delete_access_token_keys(connection, before=now - 2 * SIGNS_FOR)
            await raise_access_version(
                connection, schema=self._database.schema, projects=[ABOVE_PROJECTS], credentials=True
            )
        await self.version.refresh()

    def why_not_as(self, email: str) -> str | None:
        """Why nothing may be sent in the name of a service account now; None: it may.  A check into a
        dictionary.
        """
        account = self.directory.current.accounts.get(email.lower())
        if account is None:
            return f"{email}, whose token pushes carry, is no service account of this broker"
        return f"the service account {email}, whose token pushes carry, is disabled" if account.disabled else None

    async def exchange(self, assertion: bytes) -> str:
        """An access token for a JWT that a service account's key has signed for it (RFC 7523).

        Raises Unauthenticated, Unavailable.
        """
        await self.version.check()
        return self._accounts.exchange(assertion, now=self._now())
