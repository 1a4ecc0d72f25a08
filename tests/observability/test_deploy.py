"""The rules and the dashboard in deploy/ name metrics that there are, and each alert has a page (F1)."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from broker.observability.metrics.families import LAYOUTS
from broker.observability.metrics.gauges import GaugeValues, gauges
from tests.fixtures.broker import repository

DEPLOY, DOCS = repository() / "deploy", repository() / "docs"
_NAME = re.compile(r"\b(?:pubsub|broker)_[a-z_]+\b")
_RECORDED = re.compile(r"\b[a-z_]+:[a-z_]+:[a-z0-9_]+\b")
_OF_PROMETHEUS = {"up"}


def _families() -> Iterator[str]:
    for layout in LAYOUTS.values():
        for family in layout.families:
            yield family.name + ("_total" if family.kind == "counter" else "")
    yield from (name for name, *_ in gauges(GaugeValues()))


def _samples() -> set[str]:
    histograms = {f.name for layout in LAYOUTS.values() for f in layout.families if f.kind == "histogram"}
    parts = {f"{name}_{part}" for name in histograms for part in ("bucket", "sum", "count")}
    return parts | (set(_families()) - histograms)


def _rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((DEPLOY / "prometheus" / "rules.yml").read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def _expressions() -> list[str]:
    dashboard = json.loads((DEPLOY / "grafana" / "dashboard.json").read_text(encoding="utf-8"))
    targets = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    variables = [each["query"]["query"] for each in dashboard["templating"]["list"] if each["type"] == "query"]
    return [*targets, *variables, *(rule["expr"] for rule in _rules())]


def test_what_the_rules_and_the_dashboard_ask_for_exists() -> None:
    recorded = {rule["record"] for rule in _rules() if "record" in rule}
    for expression in _expressions():
        names = set(_NAME.findall(_RECORDED.sub("", expression)))
        assert names <= _samples(), expression
        assert set(_RECORDED.findall(expression)) <= recorded, expression
        assert names or _RECORDED.search(expression) or any(name in expression for name in _OF_PROMETHEUS)


def test_each_alert_says_what_to_do() -> None:
    headings = re.findall(r"^## (\w+)$", (DOCS / "alerts.md").read_text(encoding="utf-8"), re.MULTILINE)
    alerts = [rule for rule in _rules() if "alert" in rule]
    assert [rule["alert"] for rule in alerts if rule["alert"] not in headings] == []
    assert len(headings) == len(alerts)
    for rule in alerts:
        assert rule["annotations"]["runbook"] == f"docs/alerts.md#{rule['alert'].lower()}"


def test_each_metric_is_told_of() -> None:
    page = (DOCS / "metrics.md").read_text(encoding="utf-8")
    abbreviated = {"pubsub_subscription_num_undelivered_messages_estimated"}
    assert [name for name in _families() if f"`{name}`" not in page and name not in abbreviated] == []


def test_the_rules_do_what_their_tests_say() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian's package prometheus has it)")
    done = subprocess.run(
        [promtool, "test", "rules", "tests.yml"],
        cwd=DEPLOY / "prometheus",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
