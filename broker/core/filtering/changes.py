"""Combined filters: of a subscription whose filter was changed, and of a search within a subscription.

A changed filter is one filter that also compares the publish time of a message.
"""

from collections.abc import Sequence

from broker.core.filtering.ast import And, Expression, Not, Or, PublishedBefore
from broker.core.filtering.jsonpath import FilterPaths, filter_paths
from broker.core.filtering.parser import parse_filter
from broker.model.filter_changes import EarlierFilter
from broker.model.subscription import Subscription


def filter_expression(newest: str, earlier: Sequence[EarlierFilter] = ()) -> Expression | None:
    """Returns the expression of a subscription's filter that replaced the `earlier` ones (in the order of time).

    None: every message matches.  Raises InvalidArgument for a text that is no filter.
    """
    if not earlier:
        return parse_filter(newest) if newest else None
    spans: list[Expression] = []
    begin: tuple[Expression, ...] = ()
    for each in earlier:
        end = PublishedBefore(each.until)
        spans.append(And((*begin, end, *_parsed(each.filter))))
        begin = (Not(end),)
    spans.append(And((*begin, *_parsed(newest))))
    return Or(tuple(spans))


def compiled_filter(newest: str, earlier: Sequence[EarlierFilter] = ()) -> FilterPaths:
    """`filter_expression`, compiled."""
    expression = filter_expression(newest, earlier)
    return FilterPaths() if expression is None else filter_paths(expression)


def compiled(text: str, subscription: Subscription | None = None) -> FilterPaths:
    """Compile a filter ("" matches all messages), together with that of a subscription, which must match as well.

    Raises InvalidArgument.
    """
    wanted: list[Expression | None] = [filter_expression(text)]
    if subscription is not None:
        wanted.append(filter_expression(subscription.filter, subscription.earlier_filters))
    both = tuple(each for each in wanted if each is not None)
    return filter_paths(And(both)) if both else FilterPaths()


def _parsed(text: str) -> tuple[Expression, ...]:
    return (parse_filter(text),) if text else ()
