"""Plans are looked at on one server."""

from pathlib import Path

import pytest

_WHY = "the plan of a statement is each node's own; tests/citus/test_hot_statements.py looks at those"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.one_server(_WHY))
