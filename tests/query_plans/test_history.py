"""History is written and read by index: there are two million rows of an installation that is busy."""

from datetime import UTC, datetime, timedelta

import pytest

from broker.db.driver import statements
from tests.fixtures.log import Log
from tests.query_plans.test_dead_letters import plan_of

START = datetime(2026, 3, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture
async def crowded(log: Log) -> Log:
    await log.execute(
        "INSERT INTO history_series (resource, metric, label, used_at) SELECT 'projects/p/topics/t' || n,"
        " 'metric', '', '2026-03-01Z' FROM generate_series(1, 20000) AS n"
    )
    await log.execute(
        "INSERT INTO history_points (resolution, chunk, start_time, writer, is_gauge, series_ids, amounts)"
        " SELECT r, c, timestamptz '2026-03-01Z' + n * r * interval '1 second', 0, false, '{1}', '{1}'"
        " FROM unnest('{10, 60, 600}'::int[]) AS r, generate_series(0, 49) AS c, generate_series(1, 200) AS n"
    )
    await log.execute("ANALYZE history_series")
    await log.execute("ANALYZE history_points")
    return log


@pytest.mark.parametrize(
    ("statement", "indexes", "asked"),
    [
        (
            "find_history_series",
            {"history_series_resource_metric_label_key"},
            {
                "resources": ["projects/p/topics/t7"],
                "metrics": ["metric"],
                "labels": [""],
                "now": START + 48 * HOUR,
            },
        ),
        (
            "list_history_series",
            {"history_series_resource_metric_label_key"},
            {"resource": "projects/p/topics/t7", "metrics": ["metric"]},
        ),
        (
            "list_series_of_resources",
            {"history_series_resource_metric_label_key"},
            {"prefix": "projects/p/topics/", "metric": "metric", "label": "", "most": 1_000},
        ),
        (
            "read_history",
            {"history_points_pkey"},
            {
                "series_ids": [300],
                "period": 600,
                "resolutions": [600],
                "since": [START],
                "until": [START + 48 * HOUR],
                "chunk_size": 128,
            },
        ),
        (
            "read_publish_rates",
            {"history_series_resource_metric_label_key", "history_points_pkey"},
            {
                "topics": ["projects/p/topics/t7", "projects/p/topics/t8"],
                "metric": "metric",
                "resolution": 10,
                "chunk_size": 128,
                "since": START,
                "until": START + timedelta(minutes=1),
            },
        ),
        ("read_history_progress", {"history_points_start_time_idx"}, {"resolutions": [10, 60, 600]}),
        (
            "has_history_points",
            {"history_points_pkey"},
            {"resolution": 10, "chunk": 2, "start_time": START, "writer": 5, "is_gauge": False},
        ),
        ("find_points_to_roll_up", {"history_points_start_time_idx"}, {"resolution": 60, "period": 600}),
        (
            "roll_up_points",
            {"history_points_start_time_idx"},
            {"resolution": 10, "period": 60, "since": START, "until": START + timedelta(minutes=2)},
        ),
        (
            "delete_old_points",
            {"history_points_start_time_idx"},
            {"resolution": 10, "before": START + timedelta(minutes=1), "limit": 1000},
        ),
        (
            "delete_unused_series",
            {"history_series_used_at_idx", "history_series_pkey"},
            {"before": START - HOUR, "limit": 1000},
        ),
    ],
)
async def test_history_is_found_by_index(
    crowded: Log, statement: str, indexes: set[str], asked: dict[str, object]
) -> None:
    async with crowded.database.connection() as connection:
        plan = await plan_of(connection, statements.load(statement), asked)
    for index in indexes:
        assert index in plan, plan
    assert "Seq Scan on history" not in plan, plan
