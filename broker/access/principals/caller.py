"""The caller of a request: the identity that a credential proved, for the APIs, authorization and the audit log
(E1).
"""

from dataclasses import dataclass, field
from datetime import datetime

from broker.access.principals.service_account import project_of_address
from broker.model.names import project_within

ALL_USERS = "allUsers"
ALL_AUTHENTICATED_USERS = "allAuthenticatedUsers"


@dataclass(frozen=True, slots=True)
class Grant:
    """Roles (`roles/pubsub.publisher`) on a resource (`projects/p`, `projects/p/topics/t`) and all below it.

    `permissions` are given beside those of the roles.
    """

    roles: frozenset[str]
    resource: str
    permissions: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Caller:
    """A principal, as its credential proved it.

    `member` is the principal as policies name it (`serviceAccount:a@p.iam.broker.internal`, `user:a@b.c`); empty
    for a caller without a credential.  `members` are all the members of policies that it matches: itself, its
    groups, `domain:…`, `principalSet:…`, ALL_USERS and, with a credential, ALL_AUTHENTICATED_USERS. `credential`
    names the credential (the id of a key or an API key, an issuer and its token's id, a certificate's fingerprint),
    for the audit log and for revocation; it is no secret.  `grants` are what the credential itself allows, beside
    what policies give to `members`: the roles of an API key, on its project or on the resources that it is
    restricted to.  `confined`: it may do nothing else, whatever policies say.  `until`: when the credential ends,
    if it does; the same caller may have another by then.  `signed_by`: which key of an issuer has signed the
    credential; empty for other credentials.  `calls`: the names of the calls that it may make at all; None: any.
    """

    member: str
    members: frozenset[str]
    credential: str
    grants: tuple[Grant, ...] = ()
    confined: bool = False
    until: datetime | None = field(default=None, compare=False)
    signed_by: str = field(default="", compare=False)
    calls: frozenset[str] | None = None

    @property
    def authenticated(self) -> bool:
        return self.member != ""

    @property
    def home(self) -> str:
        """The project ("projects/p") of a service account, an API key or a share link; of anybody else the member
        itself.
        """
        kind, _, name = self.member.partition(":")
        if kind in ("apiKey", "shareLink"):
            return project_within(name)
        if kind == "serviceAccount":
            return project_of_address(name)
        return self.member


ANONYMOUS = Caller(member="", members=frozenset({ALL_USERS}), credential="")
