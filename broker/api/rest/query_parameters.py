"""Query parameters of a call.  Unknown ones are refused, as Google does (docs/decisions/0085)."""

import re
from collections.abc import Collection, Iterable, Mapping

from broker.model.errors import InvalidArgument

# Parameters of all calls, each also with a `$` before it.  docs/decisions/0074-system-parameters.md explains them.
SYSTEM_PARAMETERS = frozenset(
    {
        ".xgafv",
        "access_token",
        "alt",
        "apiVersion",
        "bearer_token",
        "callback",
        "ct",
        "fields",
        "key",
        "oauth_token",
        "passwd",
        "password",
        "pp",
        "prettyPrint",
        "quotaUser",
        "trace",
        "uploadType",
        "upload_protocol",
        "userIp",
        "userProject",
    }
)
_NAMED = ":*"  # ends the name of a family of parameters: "attribute:*" has "attribute:tenant"
_SHOWN = 100  # characters of a refused name
_CAPITAL = re.compile(r"(?=[A-Z])")


class QueryParameters:
    """The parameters of one method, beside the system parameters; each in camelCase or snake_case."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        """`names`: in camelCase; "attribute:*" stands for all that begin with "attribute:"."""
        self.names: Collection[str] = sorted(names)
        self._known = frozenset(spelling for name in self.names for spelling in (name, snake_case(name)))

    def check(self, query: Mapping[str, str]) -> None:
        """Raises InvalidArgument, naming a parameter that the method does not have."""
        for name in query:
            if not (self._has(name) or name.removeprefix("$") in SYSTEM_PARAMETERS):
                shown = name[:_SHOWN]
                raise InvalidArgument(
                    f'Invalid JSON payload received. Unknown name "{shown}": Cannot bind query parameter. '
                    f"Field '{shown}' could not be found in request message. {self._hint()}"
                )

    def _has(self, name: str) -> bool:
        """Whether it names a parameter, or a field within one ("options.requestedPolicyVersion")."""
        family, colon, _ = name.partition(":")
        return name.partition(".")[0] in self._known or bool(colon and f"{family}{_NAMED}" in self._known)

    def _hint(self) -> str:
        if not self.names:
            return "This method has no query parameters; the fields of its request, if any, are in the body."
        return f"The query parameters of this method are: {', '.join(self.names)}."


def snake_case(name: str) -> str:
    return _CAPITAL.sub("_", name).lower()
