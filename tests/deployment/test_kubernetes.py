"""The manifests and the chart are what Kubernetes takes, and say the same (L3).

The chart is rendered by tests/deployment/chart.py, which knows what little of Helm's templates it keeps to.
"""

import json
import shutil
import subprocess
from typing import Any

import jsonschema_rs
import pytest
import yaml

from broker.app.config import AppConfig
from broker.app.settings.fields import NAMES, PREFIX
from broker.net.http1.head import Head
from broker.net.http1.web_pages import WebPages
from broker.observability.state_changes import StateChanges
from tests.deployment.chart import rendered
from tests.fixtures.broker import repository

pytestmark = [pytest.mark.slow, pytest.mark.ci]

kubernetes_validate = pytest.importorskip("kubernetes_validate")  # the schemas of Kubernetes, 100 MB

DEPLOY = repository() / "deploy"
CHART = DEPLOY / "chart"
VERSIONS = ("1.27", "1.31", "1.37")  # of Kubernetes: the oldest that the chart says, and newer ones
NO_RESOURCES = {"kustomization.yaml", "prometheus-adapter.yaml"}
Resource = dict[str, Any]


def _manifests() -> list[Resource]:
    files = [path for path in sorted((DEPLOY / "kubernetes").iterdir()) if path.name not in NO_RESOURCES]
    return [document for path in files for document in yaml.safe_load_all(path.read_text())]


def _values(**changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
    return {
        name: {**value, **changes.get(name, {})} if isinstance(value, dict) else changes.get(name, value)
        for name, value in values.items()
    }


EVERYTHING = _values(autoscaler={"enabled": True}, settings={"BROKER_AUTH": "required"})
LITTLE = _values(networkPolicy={"enabled": False}, replicas=1)


def _of_kind(resources: list[Resource], kind: str) -> list[Resource]:
    return [resource for resource in resources if resource["kind"] == kind]


def _pods(resources: list[Resource]) -> list[Resource]:
    owners = _of_kind(resources, "Deployment") + _of_kind(resources, "Job")
    return [owner["spec"]["template"] for owner in owners]


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_knows_every_field(version: str) -> None:
    for resources in (_manifests(), *(rendered(CHART, values, release="r") for values in (EVERYTHING, LITTLE))):
        for resource in resources:
            kubernetes_validate.validate(resource, version, strict=True)


def test_a_field_that_it_does_not_know_would_be_seen() -> None:
    [deployment] = _of_kind(_manifests(), "Deployment")
    deployment["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError, match="readynessProbe"):
        kubernetes_validate.validate(deployment, VERSIONS[-1], strict=True)


def test_the_chart_makes_what_the_manifests_say() -> None:
    """But for names, labels and the settings of the migration, which runs before there are any."""
    by_hand, by_chart = _manifests(), rendered(CHART, EVERYTHING, release="broker")
    kinds = {resource["kind"] for resource in by_hand} - {"Namespace"}
    assert kinds == {resource["kind"] for resource in by_chart}
    by_chart = json.loads(json.dumps(by_chart).replace("somewhere", "pubsub-broker"))  # the namespace
    for one, other in zip(_pods(by_hand), _pods(by_chart), strict=True):
        for pod in (one, other):
            pod["spec"].pop("topologySpreadConstraints", None)
            pod["spec"].pop("serviceAccountName", None)
            if pod["spec"].get("restartPolicy") == "Never":
                pod["spec"]["containers"][0].pop("envFrom", None)
                pod["spec"]["containers"][0].pop("env", None)
        assert one["spec"] == other["spec"]
    for kind in ("HorizontalPodAutoscaler", "ConfigMap"):
        [one], [other] = _of_kind(by_hand, kind), _of_kind(by_chart, kind)
        assert set(one.get("data", {}).items()) <= set(other.get("data", {}).items())
        assert one.get("spec") == other.get("spec")


@pytest.mark.parametrize(
    ("resources", "namespace"),
    [
        (_manifests(), "pubsub-broker"),
        (rendered(CHART, EVERYTHING, release="r"), "somewhere"),
        (rendered(CHART, _values(allowedHosts="broker.example.com"), release="r"), "somewhere"),
    ],
    ids=["files", "chart", "chart-with-names"],
)
def test_each_name_of_a_service_in_its_cluster_is_the_brokers(resources: list[Resource], namespace: str) -> None:
    """https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/: clients may leave out the end."""
    [deployment] = _of_kind(resources, "Deployment")
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    names = {each["name"]: each["value"] for each in container["env"]}["BROKER_ALLOWED_HOSTS"]
    config = AppConfig(database_url="", host="0.0.0.0", allowed_hosts=names)
    pages = WebPages(hosts=config.hosts, states=StateChanges())

    def is_served(host: str) -> bool:
        headers = [(b"host", host.encode())]
        head = Head("GET", b"/", b"", "1.1", headers, length=0, keep_alive=True, expects_continue=False)
        return pages.serves(pages.judge(head), secure=False)

    for service in _of_kind(resources, "Service"):
        name = service["metadata"]["name"]
        for end in ("", f".{namespace}", f".{namespace}.svc", f".{namespace}.svc.cluster.local"):
            assert is_served(f"{name}{end}:8085"), f"{name}{end}"
    assert not is_served("broker.attacker:8085")
    assert is_served("broker.example.com") == ("broker.example.com" in names)


@pytest.mark.parametrize(
    "resources", [_manifests(), rendered(CHART, EVERYTHING, release="r")], ids=["files", "chart"]
)
def test_a_pod_may_do_nothing_that_it_need_not_and_is_found_by_what_is_about_it(resources: list[Resource]) -> None:
    for pod in _pods(resources):
        assert pod["spec"]["securityContext"]["runAsNonRoot"]
        assert not pod["spec"]["automountServiceAccountToken"]
        [container] = pod["spec"]["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
    [broker, migration] = [pod["metadata"]["labels"] for pod in _pods(resources)]
    [budget] = _of_kind(resources, "PodDisruptionBudget")
    [policy] = _of_kind(resources, "NetworkPolicy")
    services = [service["spec"]["selector"] for service in _of_kind(resources, "Service")]
    for selector in [budget["spec"]["selector"]["matchLabels"], *services]:
        assert selector.items() <= broker.items()
        assert not selector.items() <= migration.items()
    assert policy["spec"]["podSelector"]["matchLabels"].items() <= broker.items() & migration.items()


def test_what_is_set_is_a_setting() -> None:
    [settings] = _of_kind(rendered(CHART, EVERYTHING, release="r"), "ConfigMap")
    [ours] = _of_kind(_manifests(), "ConfigMap")
    compose = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())
    lines = (DEPLOY / "compose" / compose["x-broker"]["env_file"]).read_text().splitlines()
    in_compose = [line.partition("=")[0] for line in lines if line and not line.startswith("#")]
    for name in (*settings["data"], *ours["data"], *in_compose):
        assert name.removeprefix(PREFIX).lower() in NAMES, name


def test_values_are_checked_before_anything_is_made() -> None:
    schema = jsonschema_rs.validator_for(json.loads((CHART / "values.schema.json").read_text()))
    for values in (_values(), EVERYTHING, LITTLE):
        schema.validate(values)
    for bad in (
        _values(replicas=0),
        {**_values(), "replica": 2},
        _values(settings={"BROKER_WORKERS": 2}),
        _values(settings={"DATABASE_URL": "x"}),
        _values(settings={"BROKER_ALLOWED_HOSTS": "x"}),
    ):
        assert not schema.is_valid(bad), bad


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl")
def test_kustomize_takes_the_directory() -> None:
    built = subprocess.run(
        ["kubectl", "kustomize", DEPLOY / "kubernetes"], capture_output=True, text=True, timeout=60, check=True
    )
    resources = list(yaml.safe_load_all(built.stdout))
    assert {resource["metadata"].get("namespace", "-") for resource in resources} == {"pubsub-broker", "-"}
    assert not _of_kind(resources, "Job")  # which is applied before the others, by hand
