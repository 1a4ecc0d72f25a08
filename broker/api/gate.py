"""Authenticates and authorizes calls, if authentication is required.

The APIs pass the credentials of a request before its handler runs.  Long-lived calls (streams, waiting pulls) are
registered here, and ended when their credential becomes invalid.  Allowed calls are cached until something changes
in the project of their resource; the same call again costs two dictionary accesses.
"""

import asyncio
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any, Protocol

from broker.access.credentials import refusals
from broker.access.credentials.authenticator import Authenticator, Shown
from broker.access.policies.authorizer import Authorizer, Required
from broker.access.principals.caller import Caller
from broker.access.principals.policy import ABOVE_PROJECTS
from broker.access.versions.access_changes import AccessChanges
from broker.access.versions.version import AccessVersion, Validity
from broker.api.permissions import FindSubscription, Needs, required_by, required_on
from broker.model.errors import BrokerError, PermissionDenied, Unauthenticated
from broker.model.subscription import Subscription

MAX_PASSED = 50_000  # calls of a caller on a resource; some 15 MB

CHALLENGE = b'Bearer realm="pubsub-broker"'  # WWW-Authenticate, with UNAUTHENTICATED


class OpenCall(Protocol):
    """A call that is held: `end` answers it with the error, if it is not answered yet."""

    @property
    def caller(self) -> Caller: ...

    @property
    def required(self) -> Sequence[Required]:
        """The permissions for which the call was allowed."""

    def end(self, error: BrokerError) -> None: ...


class Gate:
    """The authentication and authorization of the calls of a process, of both APIs."""

    def __init__(
        self,
        authenticator: Authenticator,
        authorizer: Authorizer,
        version: AccessVersion,
        *,
        find_subscription: FindSubscription,
    ) -> None:
        self._authenticator = authenticator
        self._authorizer = authorizer
        self._find_subscription = find_subscription
        self.warm = authenticator.warm  # the cached caller with this `Authorization`
        self._passed: dict[tuple[Caller, Needs, str], tuple[Sequence[Required], Validity]] = {}
        self.changes = 0  # known changes of access; a call that was admitted at another number is checked again
        self._open: dict[OpenCall, asyncio.TimerHandle | None] = {}  # with the timer of its credential's end
        self._unchecked: dict[OpenCall, None] = {}  # open calls whose permissions may have changed
        self._checking: asyncio.Task[None] | None = None
        version.after_change(self._check_again)
        authenticator.after_withdrawal(self._end_calls_of_withdrawn_keys)

    async def caller(self, shown: Shown, needs: Needs) -> Caller:
        """ANONYMOUS where nothing is shown, and some policy lets all users do something.

        Raises Unauthenticated, Unavailable.
        """
        caller = await self._authenticator.caller(shown)
        if not caller.authenticated and not (needs.all and await self._authorizer.is_open()):
            raise refusals.missing()
        return caller

    def passed(self, caller: Caller, needs: Needs, name: str) -> Sequence[Required] | None:
        """Returns the permissions that `allow` has checked for such a call before; None: it has to check.

        Only for a caller who is `warm`.
        """
        found = self._passed.get((caller, needs, name))
        return found[0] if found is not None and found[1].holds else None

    async def allow(self, caller: Caller, needs: Needs, name: str) -> Sequence[Required]:
        """Checks the permissions of a call on the resource of this name.  Returns them.

        The name is known before the rest of a request is read.  `allow_request` checks what a call needs on other
        resources, which its request names.

        Raises PermissionDenied, Unauthenticated (without a credential), InvalidArgument (nothing can have that
        name), Unavailable.
        """
        required = await required_on(needs, name, self._finder(caller))
        validity = self._authorizer.validity(required)
        found = await self._pass(caller, needs, required)
        if found is not required:
            return found
        if validity is not None:
            if len(self._passed) >= MAX_PASSED:
                self._passed.clear()
            self._passed[caller, needs, name] = (required, validity)
        return required

    async def allow_request(
        self, caller: Caller, needs: Needs, request: Any, *, or_update: bool = False
    ) -> Sequence[Required]:
        """Let a call with Google's request pass; what it needed.  Raises as `allow`."""
        required = await required_by(needs, request, self._finder(caller), or_update=or_update)
        return await self._pass(caller, needs, required)

    async def may(self, caller: Caller, required: Required) -> bool:
        """Whether a caller may do one thing.  Raises Unavailable."""
        try:
            await self._authorizer.check(caller, [required])
        except PermissionDenied:
            return False
        return True

    def hold(self, call: OpenCall) -> None:
        """End the call once its credential is good no more; until `let_go`.

        One whose token has expired is UNAVAILABLE, not UNAUTHENTICATED: Google's libraries call again then, with a
        new token, while the other ends their subscribers for good, an hour after each start.
        """
        left = self._authenticator.seconds_left(call.caller)
        ending = None
        if left is not None:
            ending = asyncio.get_running_loop().call_later(left, call.end, refusals.expired_meanwhile())
        self._open[call] = ending

    def let_go(self, call: OpenCall) -> None:
        self._unchecked.pop(call, None)
        ending = self._open.pop(call, None)
        if ending is not None:
            ending.cancel()

    def _finder(self, caller: Caller) -> FindSubscription:
        """Finds what a call needs its permissions on; that costs a query although the caller may have none."""

        async def find(name: str) -> Subscription:
            async with self._authorizer.turn_of(caller.home):
                return await self._find_subscription(name)

        return find

    async def _pass(self, caller: Caller, needs: Needs, required: Sequence[Required]) -> Sequence[Required]:
        """Returns `required`.  Of a list that is refused on a project it returns the permission on each resource of
        the list on which the caller has it; and where another permission suffices instead, the first of those.

        Raises as `allow`.
        """
        try:
            await self._check(caller, required)
        except (PermissionDenied, Unauthenticated) as error:
            for permission in needs.instead:
                other = [required[0]._replace(permission=permission)]
                with suppress(PermissionDenied):
                    await self._authorizer.check(caller, other)
                    return other
            if not needs.listed or isinstance(error, Unauthenticated):
                raise
            [(permission, project, _)] = required
            visible = await self._authorizer.visible(caller, permission, f"{project}/{needs.listed}/")
            if not visible:
                raise
            return visible
        return required

    async def _check(self, caller: Caller, required: Sequence[Required]) -> None:
        try:
            await self._authorizer.check(caller, required)
        except PermissionDenied:
            if caller.authenticated:
                raise
            raise refusals.missing() from None  # with a credential it may be allowed

    def _check_again(self, changes: AccessChanges) -> None:
        """Check the open calls of callers, and about resources, of the projects in which something changed."""
        self.changes += 1
        projects = changes.projects
        for call in list(self._open):
            if projects is None or self._is_in(call, projects):
                if self._authenticator.still_holds(call.caller):
                    self._unchecked[call] = None
                else:
                    call.end(refusals.revoked())
        if self._unchecked and (self._checking is None or self._checking.done()):
            checking = self._check_open()
            self._checking = asyncio.get_running_loop().create_task(checking, name="open calls are checked again")

    def _end_calls_of_withdrawn_keys(self) -> None:
        """Ends the calls whose issuer has withdrawn their key.

        Calls that are still arriving check again before they act.  Issuers withdraw keys when they renew them, so
        this is UNAVAILABLE as in `hold`.
        """
        self.changes += 1
        for call in list(self._open):
            if not self._authenticator.still_holds(call.caller):
                call.end(refusals.withdrawn_meanwhile())

    def _is_in(self, call: OpenCall, projects: Collection[str]) -> bool:
        """Returns whether a call is in the projects.  It also is if the account of its caller is gone."""
        caller, of_caller = call.caller, self._authenticator.project_of(call.caller)
        is_gone = of_caller == ABOVE_PROJECTS and not self._authenticator.still_holds(caller)
        return is_gone or of_caller in projects or self._authorizer.are_in(call.required, projects)

    async def _check_open(self) -> None:
        """Checks the open calls again.  A change meanwhile adds calls; the checks do not start over for it."""
        while self._unchecked:
            call = next(iter(self._unchecked))
            del self._unchecked[call]
            try:
                await self._check(call.caller, call.required)
            except BrokerError as error:
                call.end(error)
