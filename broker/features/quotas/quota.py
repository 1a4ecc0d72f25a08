"""Quotas: how much a project, and each principal in it, may use (E4).

A *rate* is an amount per second, with a burst of one second's worth.  A *count* is a number of resources that a
project has, an *amount* what it occupies at the moment.  Google's service has quotas of these kinds
(https://cloud.google.com/pubsub/quotas), and unlimited is -1 as in its Service Usage
(https://cloud.google.com/service-usage/docs/reference/rest/v1beta1/QuotaOverride).
"""

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import NamedTuple

from broker.model.errors import Aborted, InvalidArgument, QuotaExceeded
from broker.model.names import leaf
from broker.model.quota_names import AMOUNTS, QUOTAS, RATES, Amount, Counted

UNLIMITED = -1
MAX_LIMIT = 2**53 - 1  # what every JSON parser holds exactly

_UNITS = {
    "retainedBytes": "bytes",
    "Requests": "requests a second",
    "Messages": "messages a second",
    "Bytes": "bytes a second",
}
_ADVICE = {
    "retainedBytes": (
        "have messages acknowledged, shorten the retention of topics and subscriptions (until it is over acks give "
        "nothing back), delete subscriptions, snapshots or topics that keep messages,"
    ),
    "connections": "close streams, or have fewer of them and of pulls wait at a time,",
}

Limits = Mapping[str, int]  # by the quota's name; one that is not there is not limited here


@dataclass(frozen=True, slots=True)
class ProjectQuotas:
    """The quotas that were set for a project.

    `limits`: of the project; `principal_limits`: of each principal in it (rates).  A quota that is missing has the
    default of the installation; UNLIMITED: none.
    """

    limits: Limits = field(default_factory=dict)
    principal_limits: Limits = field(default_factory=dict)

    def over(self, defaults: "ProjectQuotas") -> "ProjectQuotas":
        """The limits that hold, where `defaults` are those of the installation."""
        return ProjectQuotas(
            _limited({**defaults.limits, **self.limits}),
            _limited({**defaults.principal_limits, **self.principal_limits}),
        )

    def changed(
        self, limits: Mapping[str, int | None], principal_limits: Mapping[str, int | None]
    ) -> "ProjectQuotas":
        """Returns the quotas with these limits instead; None: the default again.  Raises InvalidArgument."""
        return ProjectQuotas(
            _changed(self.limits, limits, "limits", QUOTAS),
            _changed(self.principal_limits, principal_limits, "principalLimits", RATES),
        )

    @property
    def etag(self) -> str:
        """A text that is the same for the same limits alone."""
        limits = json.dumps([self.limits, self.principal_limits], sort_keys=True)
        return b64encode(sha256(limits.encode()).digest()[:12]).decode()

    def check_etag(self, etag: str) -> None:
        """Raises Aborted unless these are the quotas that had this etag ("": any are)."""
        if etag and etag != self.etag:
            raise Aborted(f"The quotas have changed since they were read; read them again (etag={etag[:100]}).")

    @property
    def is_metered(self) -> bool:
        """Whether calls must be counted, once these are the limits that hold."""
        return bool(self.principal_limits) or any(name in self.limits for name in (*RATES, *AMOUNTS))


NO_QUOTAS = ProjectQuotas()


class Usage(NamedTuple):
    """The recent usage of a rate, for each second.  `principal`: empty for that of the project."""

    principal: str
    quota: str
    usage: float


@dataclass(frozen=True, slots=True)
class QuotaReport:
    """`set_here`: for the project itself; `in_force`: with the defaults.

    Rates and amounts without a limit have no usage.
    """

    project: str
    set_here: ProjectQuotas
    in_force: ProjectQuotas
    rates: Sequence[Usage]
    counts: Mapping[Counted, int]
    amounts: Mapping[Amount, int]


def _limited(limits: Limits) -> Limits:
    return {name: limit for name, limit in limits.items() if limit != UNLIMITED}


def _changed(current: Limits, given: Mapping[str, int | None], name: str, known: tuple[str, ...]) -> dict[str, int]:
    for quota, limit in given.items():
        if quota not in known:
            raise InvalidArgument(
                f"{name}.{quota[:100]} is no quota; those of {name} are {', '.join(known)} ({name}={quota[:100]})."
            )
        if limit is not None and not UNLIMITED <= limit <= MAX_LIMIT:
            raise InvalidArgument(
                f"{name}.{quota} must be from 0 to {MAX_LIMIT}, or -1: no limit ({name}.{quota}={limit})."
            )
    return {quota: limit for quota, limit in {**current, **given}.items() if limit is not None}


def parse_limits(text: str) -> dict[str, int]:
    """Limits as settings give them: "publishMessages=1000,topics=100".  Raises ValueError."""
    limits: dict[str, int] = {}
    for one in text.split(","):
        name, equals, limit = (part.strip() for part in one.partition("="))
        if not (name or equals):
            continue
        if name not in QUOTAS or not limit.isascii() or not limit.isdigit() or int(limit) > MAX_LIMIT:
            raise ValueError(one.strip() or text)
        limits[name] = int(limit)
    return limits


def parse_rates(text: str) -> dict[str, int]:
    """Parses limits as parse_limits does, of rates alone.  Raises ValueError."""
    limits = parse_limits(text)
    for name in limits:
        if name not in RATES:
            raise ValueError(f"{name} is no rate, and of a principal there are only rates")
    return limits


def unit_of(quota: str) -> str:
    """Returns the unit that the limit of a quota counts."""
    return next((unit for end, unit in _UNITS.items() if quota.endswith(end)), quota)


def exceeded(
    quota: str, *, project: str, principal: str = "", limit: int, usage: float, retry_seconds: float | None = None
) -> QuotaExceeded:
    """The refusal of a call, with what Google's clients read.

    `retry_seconds`: when it may be tried again; None: waiting does not help.
    """
    subject = f"principal {principal} in project {leaf(project)}" if principal else f"project {leaf(project)}"
    used = round(usage) if usage < MAX_LIMIT else limit
    if quota in RATES:
        advice = f"try again in {retry_seconds or 0:.1f} s, send less or in larger batches,"
    else:
        advice = _ADVICE.get(quota, f"delete {quota} that are not needed,")
    description = f"{quota} of {subject} is at {used} of {limit} ({unit_of(quota)})"
    ids = {"quota_limit": quota, "quota_limit_value": str(limit), "consumer": project}
    if principal:
        ids["principal"] = principal
    return QuotaExceeded(
        f"Quota exceeded: {description}; {advice} or have the limit raised (PATCH /v1/{project}/quotas).",
        log_message=f"quota {quota} of {subject} ({limit}) is used up",
        retry_seconds=retry_seconds,
        details=[
            {
                "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                "reason": "RATE_LIMIT_EXCEEDED" if quota in RATES else "RESOURCE_QUOTA_EXCEEDED",
                "domain": "googleapis.com",
                "metadata": {**ids, "service": "pubsub.googleapis.com"},
            },
            {
                "@type": "type.googleapis.com/google.rpc.QuotaFailure",
                "violations": [{"subject": principal or project, "description": description}],
            },
        ],
    )
