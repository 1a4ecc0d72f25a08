"""Resolves the members of policies to the callers that they stand for."""

from dataclasses import dataclass

from broker.access.credentials.authenticator import api_key_caller
from broker.access.credentials.directory import Credentials
from broker.access.principals.caller import ALL_AUTHENTICATED_USERS, ALL_USERS, ANONYMOUS, Caller
from broker.access.principals.service_account import is_own_address
from broker.access.principals.service_agent import is_service_agent


@dataclass(frozen=True, slots=True)
class NamedPrincipal:
    """`why_nobody`: why nobody can call as this principal; empty if somebody can, or if that is unknown."""

    caller: Caller
    why_nobody: str = ""


def find_principal(member: str, credentials: Credentials) -> NamedPrincipal:
    """Returns the caller that a member of policies stands for, without the groups that only its token names.

    A group or a domain stands for a caller who is in it and has no other name.
    """
    kind, _, name = member.partition(":")
    if member == ALL_USERS:
        return NamedPrincipal(ANONYMOUS)
    if kind == "apiKey":
        key = credentials.api_key(name)
        if key is not None:
            return NamedPrincipal(api_key_caller(key))
        return NamedPrincipal(Caller(member, frozenset(), credential=""), "there is no such API key")
    members = {member, ALL_USERS, ALL_AUTHENTICATED_USERS}
    if kind == "user":
        members.add(f"domain:{name.rpartition('@')[2]}")
    return NamedPrincipal(
        Caller(member, frozenset(members), credential=""), _why_no_account(kind, name, credentials)
    )


def _why_no_account(kind: str, name: str, credentials: Credentials) -> str:
    if kind != "serviceAccount" or not is_own_address(name) or is_service_agent(name):
        return ""
    account = credentials.accounts.get(name)
    if account is None:
        return "there is no such service account"
    return "the service account is disabled" if account.disabled else ""
