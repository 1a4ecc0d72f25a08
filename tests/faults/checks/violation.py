"""What a check says when something must not have happened."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Violation:
    """`rule` names the property; `operations` are the numbers of those that show it, in the history."""

    rule: str
    text: str
    operations: tuple[int, ...] = ()

    def __str__(self) -> str:
        numbers = f" (operations {', '.join(map(str, self.operations))})" if self.operations else ""
        return f"{self.rule}: {self.text}{numbers}"


def violation(rule: str, text: str, operations: Iterable[int] = ()) -> Violation:
    return Violation(rule, text, tuple(operations))
