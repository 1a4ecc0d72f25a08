"""The response to a scrape: Prometheus' text format, or OpenMetrics if the request accepts it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import cast

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector, CollectorRegistry

from broker.observability.metrics.book import OTHER, CounterBook, project_of
from broker.observability.metrics.families import LAYOUTS
from broker.observability.metrics.gauges import GaugeValues, gauges
from broker.observability.metrics.layout import Family

_LABELS: Mapping[str, Sequence[str]] = {
    "topic": ("project", "topic"),
    "subscription": ("project", "subscription"),
    "project": ("project",),
    "process": (),
}


def labels_of(kind: str, name: str) -> Sequence[str]:
    """Returns the values of a kind's labels for a full name: its project and its id."""
    if not _LABELS[kind]:
        return ()
    if name == OTHER:
        return [OTHER] * len(_LABELS[kind])
    parts = name.split("/")
    return [parts[1], parts[-1]][: len(_LABELS[kind])]


class BookCollector:
    """The collector of everything that is counted in a book, and of present amounts (`gauge_values`)."""

    def __init__(self, book: CounterBook, may_read: Callable[[str], bool], gauge_values: GaugeValues) -> None:
        """`may_read(project)`: whether its series are shown; "": those of no project."""
        self._book = book
        self._may_read = may_read
        self._gauge_values = gauge_values

    def collect(self) -> Iterator[Metric]:
        for kind, layout in LAYOUTS.items():
            rows = [
                (labels_of(kind, name), totals)
                for name, totals in self._totals(kind)
                if self._may_read(project_of(name))
            ]
            if kind != "process":  # what never was needs no series
                rows = [row for row in rows if any(row[1])]
            for family in layout.families:
                yield _metric(family, _LABELS[kind], rows)
        for name, help_, kind, values in gauges(self._gauge_values):
            gauge = GaugeMetricFamily(name, help_, labels=_LABELS[kind or "process"])
            for resource, value in values:
                if self._may_read(project_of(resource) if resource else ""):
                    gauge.add_metric(labels_of(kind or "process", resource), value)
            yield gauge

    def _totals(self, kind: str) -> Iterator[tuple[str, list[int]]]:
        """Yields the counts by name; those of names without series of their own are summed as OTHER."""
        for name, entry in self._book.names(kind):
            if 0 < entry <= self._book.series:
                yield name, self._book.totals(kind, entry)
        yield OTHER, self._book.totals_of_other(kind)


def expose(collector: BookCollector, accept: str) -> tuple[bytes, str]:
    """Returns the body for a request with this `Accept` header, and its Content-Type."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(cast(Collector, collector))  # it has private names of its own: no base of ours
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


def _metric(family: Family, labels: Sequence[str], rows: Iterable[tuple[Sequence[str], list[int]]]) -> Metric:
    at = family.offset
    if family.kind == "histogram":
        histogram = HistogramMetricFamily(family.name, family.help, labels=labels)
        bounds = [*(_text(bound * family.scale) for bound in family.bounds), "+Inf"]
        for values, slots in rows:
            counts = accumulate(slots[at : at + len(bounds)])
            total = slots[at + len(bounds)] * family.scale
            histogram.add_metric(values, list(zip(bounds, counts, strict=True)), total)
        return histogram
    if family.kind == "gauge":
        gauge = GaugeMetricFamily(family.name, family.help, labels=labels)
        for values, slots in rows:
            gauge.add_metric(values, slots[at])
        return gauge
    if not family.label:
        counter = CounterMetricFamily(family.name, family.help, labels=labels)
        for values, slots in rows:
            counter.add_metric(values, slots[at])
        return counter
    counter = CounterMetricFamily(family.name, family.help, labels=(*labels, family.label))
    for values, slots in rows:
        for number, value in enumerate(family.values):
            if slots[at + number] or not number:
                counter.add_metric((*values, value), slots[at + number] * family.scale)
    return counter


def _text(bound: float) -> str:
    return repr(round(float(bound), 9))
