"""Authenticates client certificates: a file of the operator maps the names in a certificate to a principal."""

from collections.abc import Mapping
from datetime import datetime

from broker.access.credentials import refusals
from broker.access.credentials.directory import CredentialDirectory
from broker.access.credentials.proven import Proven
from broker.access.principals.caller import ALL_AUTHENTICATED_USERS, ALL_USERS, Caller
from broker.access.principals.certificate_principals import CertificatePrincipals, comparable
from broker.model.client_certificate import ClientCertificate

KIND = "certificate"  # of Caller.credential, before the fingerprint
_ACCOUNT = "serviceAccount:"


class Certificates:
    """The certificates of clients.  TLS has already verified their signatures."""

    def __init__(self, directory: CredentialDirectory, principals: CertificatePrincipals) -> None:
        """Maps certificates to `principals`.

        Without any, a certificate authenticates nobody, but is needed to connect.
        """
        self._directory = directory
        self._principals: Mapping[tuple[str, str], str] = principals

    @property
    def are_credentials(self) -> bool:
        return bool(self._principals)

    def check(self, shown: ClientCertificate, *, now: datetime) -> Proven:
        """Raises Unauthenticated."""
        if shown.until <= now:  # the connection may be older than that
            raise refusals.certificate("has expired")
        members = {self._principals[name] for name in map(comparable, shown.names) if name in self._principals}
        if not members:
            raise refusals.certificate("has no name that is given to a principal (--certificate-principals)")
        if len(members) > 1:
            raise refusals.certificate("has names of more than one principal (--certificate-principals)")
        [member] = members
        if member.startswith(_ACCOUNT):
            account = self._directory.current.accounts.get(member.removeprefix(_ACCOUNT))
            if account is None:
                raise refusals.certificate("is of a service account that does not exist")
            if account.disabled:
                raise refusals.account_disabled()
        domain = f"domain:{member.rpartition('@')[2]}"
        matched = {member, ALL_USERS, ALL_AUTHENTICATED_USERS} | ({domain} if member.startswith("user:") else set())
        return Proven(Caller(member, frozenset(matched), f"{KIND}:{shown.fingerprint}"), shown.until)

    def still_holds(self, caller: Caller) -> bool:
        """Whether the account of a caller that was let in is there, and not disabled."""
        if not caller.member.startswith(_ACCOUNT):
            return True
        account = self._directory.current.accounts.get(caller.member.removeprefix(_ACCOUNT))
        return account is not None and not account.disabled
