"""A history of exports and imports."""

from tests.faults.operation import Came
from tests.faults.operations_of_one import Carried
from tests.faults.small_histories import parts
from tests.faults.small_histories.parts import Plants


def _came(names: str, first_id: int) -> list[Came]:
    return [Came(first_id + number, name) for number, name in enumerate(names)]


class Parts(parts.Parts):
    """A history in which all is well: a, b and d are of a key."""

    def __init__(self) -> None:
        super().__init__()
        self._add(what="wrote", key="k", came=_came("ab", 1))
        self._add(what="wrote", came=_came("c", 101))
        self.first = self._add(what="moved", format="AVRO", came=[*_came("c", 101), *_came("ab", 1)])
        self._add(what="wrote", key="k", came=_came("d", 3))
        self.second = self._add(what="moved", format="JSON_LINES", came=[*_came("abd", 1), *_came("c", 101)])
        self.read = self._add(what="read", came=[*_came("ababd", 501), *_came("cc", 601), *_came("a", 501)])

    def _add(self, **fields: object) -> Carried:
        at = float(len(self.history.operations))
        done = Carried(who="x", began=at, ended=at + 0.5, **fields)  # type: ignore[arg-type]
        self.history.add(done)
        return done


def _export_one_less(parts: Parts) -> None:
    parts.second.came.pop()
    parts.read.came = [*_came("ababd", 501), *_came("c", 601)]


def _export_one_twice(parts: Parts) -> None:
    parts.second.came += _came("c", 101)
    parts.read.came = [*_came("ababd", 501), *_came("ccc", 601)]


def _export_under_another_id(parts: Parts) -> None:
    parts.first.came[0].id = 7


def _export_out_of_order(parts: Parts) -> None:
    parts.first.came = [*_came("c", 101), Came(2, "b"), Came(1, "a")]
    parts.read.came = [*_came("baabd", 501), *_came("cc", 601)]


def _import_a_part_twice(parts: Parts) -> None:
    parts.read.came += _came("c", 701)


def _do_not_import(parts: Parts) -> None:
    parts.read.came = [*_came("ababd", 501), *_came("c", 601)]


def _import_out_of_order(parts: Parts) -> None:
    parts.read.came = [*_came("abbad", 501), *_came("cc", 601)]


PLANTS: Plants = {
    "export one less": (_export_one_less, {"exported"}),
    "export one twice": (_export_one_twice, {"exported"}),
    "export under another id": (_export_under_another_id, {"exported"}),
    "export out of order": (_export_out_of_order, {"carried order"}),
    "import a part twice": (_import_a_part_twice, {"imported"}),
    "do not import": (_do_not_import, {"imported"}),
    "import out of order": (_import_out_of_order, {"carried order"}),
}
