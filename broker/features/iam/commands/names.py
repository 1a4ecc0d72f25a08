"""Expands the short names of accounts, members, roles and resources that commands accept.

Names in the form of the API stay as they are: full names, addresses with a domain, roles with a prefix.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from broker.access.principals.service_account import email_of, is_own_address
from broker.client.api import NotKnown, NotReached, NotThere, Refused
from broker.client.calling import Session
from broker.client.command_line import guess
from broker.client.connection import full_name
from broker.client.stop import Misuse
from broker.model.errors import InvalidArgument

_EVERYBODY = ("allUsers", "allAuthenticatedUsers")
_COLLECTIONS = ("topics", "subscriptions", "snapshots", "schemas", "serviceAccounts")
_ALIASES = {"topic": "topics", "sub": "subscriptions", "subscription": "subscriptions"} | {
    "snapshot": "snapshots",
    "schema": "schemas",
}
_FORMS = "projects/PROJECT, topics/ID, subscriptions/ID, snapshots/ID, schemas/ID or serviceAccounts/ID"


def account_address(session: Session, given: str) -> str:
    """Returns `billing@shop.iam.broker.internal` for `billing`; an address or a unique id stays as it is.

    Raises Misuse.
    """
    if "@" in given or "/" in given or given.isdigit():
        return given
    try:
        return email_of(session.project, given)
    except InvalidArgument as error:
        raise Misuse(str(error)) from None


def account_name(session: Session, account: str) -> str:
    """Returns the full name of an account, in any project.  Raises Misuse."""
    address = account_address(session, account)
    return address if address.startswith("projects/") else f"projects/-/serviceAccounts/{address}"


@contextmanager
def guessing_account(session: Session, account: str) -> Iterator[None]:
    """Suggests a similar service account in the error if the server does not know this one.  Raises NotThere."""
    try:
        yield
    except Refused as refused:
        if refused.status != "NOT_FOUND" or "/keys/" in refused.reason:
            raise
        address = account_address(session, account)
        guessed = guess(address, _addresses(session))
        more = guessed or "; `broker auth accounts list` shows the accounts"
        raise NotThere(f"there is no service account {address}{more}") from None


@contextmanager
def guessing_accounts(session: Session, member: str) -> Iterator[None]:
    """Suggests a similar service account in the error if the server does not know this one.  Raises NotThere."""
    try:
        yield
    except Refused as refused:
        guessed = ""
        if member in refused.reason and "does not exist" in refused.reason:
            guessed = guess(member.rpartition(":")[2], _addresses(session))
        if not guessed:
            raise
        raise NotThere(f"there is no service account {member.rpartition(':')[2]}{guessed}") from None


def member_of(session: Session, given: str) -> str:
    """Returns `serviceAccount:billing@shop.iam.broker.internal` for `billing`.  Raises Misuse."""
    if ":" in given or given in _EVERYBODY:
        return given
    if "@" in given and not is_own_address(given):
        raise Misuse(f"--member {given!r} must say what it is, such as user:{given} or group:{given}")
    return f"serviceAccount:{account_address(session, given)}"


def resource_of(session: Session, given: str) -> str:
    """Returns `projects/shop/topics/orders` for `topics/orders`.  Raises Misuse."""
    if given.startswith("projects/"):
        return given
    collection, _, name = given.partition("/")
    collection = _ALIASES.get(collection, collection)
    if collection not in _COLLECTIONS or not name or "/" in name:
        guessed = guess(collection, (*_COLLECTIONS, *_ALIASES)) if name else ""
        raise Misuse(f"RESOURCE must be {_FORMS}, not {given!r}{guessed}")
    if collection == "serviceAccounts":
        return f"{session.project}/serviceAccounts/{account_address(session, name)}"
    return full_name(name, collection, session.short_project)


def role_of(session: Session, given: str) -> str:
    """Returns `roles/pubsub.publisher` for `publisher`.  Raises NotThere for a role that the server does not have.

    If the caller may not list roles, it must give full names, which the server checks.
    """
    known = _roles(session)
    if not known:
        if "/" not in given:
            raise Misuse(f"--role {given!r} must be a whole name, such as roles/pubsub.publisher")
        return given
    named = [role for role in known if given == role or _short(role) == given or role == f"roles/{given}"]
    if len(named) > 1:
        raise Misuse(f"--role {given!r} is one of {' and '.join(named)}: give one of these")
    if named:
        return named[0]
    if given.startswith("projects/") and not given.startswith(f"{session.project}/"):
        return given  # of another project: the server says
    guessed = guess(given, known) or _guess_short(given, known)
    more = guessed or "; `broker auth roles list` shows the roles"
    raise NotThere(f"there is no role {given}{more}")


def project_role(session: Session, role: str) -> str:
    """Returns the full name of a role: a predefined one if it has the prefix, else one of the project's own.

    Raises Misuse.
    """
    return role if role.startswith("roles/") else full_name(role, "roles", session.short_project)


def _roles(session: Session) -> list[str]:
    found: list[str] = []
    for path in ("roles", f"{session.project}/roles"):
        try:
            found += [str(role["name"]) for role in session.api.all_of(path, "roles")]
        except (Refused, NotKnown):  # a caller may be allowed to grant roles and not to list them
            return []
    return found


def _guess_short(given: str, known: Sequence[str]) -> str:
    """Returns a suggestion, made by the last words of names; it contains the full name of the role."""
    by_word = {_short(role): role for role in known}
    guessed = guess(given.rpartition("/")[2].rpartition(".")[2], by_word)
    word = guessed.removeprefix("; did you mean ").removesuffix("?")
    return f"; did you mean {by_word[word]}?" if guessed else ""


def _short(role: str) -> str:
    return role.rpartition("/")[2].rpartition(".")[2]


def _addresses(session: Session) -> list[str]:
    try:
        return [str(one["email"]) for one in session.api.all_of(f"{session.project}/serviceAccounts", "accounts")]
    except (Refused, NotKnown, NotReached, Misuse):
        return []
