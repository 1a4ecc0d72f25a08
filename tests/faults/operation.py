"""What all operations of a history have (history.py)."""

from typing import Literal, TypeAlias

import msgspec

Outcome: TypeAlias = Literal["ok", "failed", "unknown"]


class Operation(msgspec.Struct, kw_only=True, omit_defaults=True):
    """`who` did it: one client, which does one thing after the other unless its kind says otherwise."""

    who: str
    began: float
    ended: float
    outcome: Outcome = "ok"


class Came(msgspec.Struct, array_like=True):
    """`early`: it was published before its time, by so many seconds."""

    id: int
    name: str
    early: float = 0.0
