"""Subscriptions that write to another service, topics that read from one: kept, and in error as Google has them."""

import pytest

from tests.fixtures.broker import Json, Rest, text

EXPORTS: dict[str, Json] = {
    "bigqueryConfig": {
        "table": "project.dataset.table",
        "useTableSchema": True,
        "writeMetadata": True,
        "dropUnknownFields": True,
        "serviceAccountEmail": "writer@example.iam.gserviceaccount.com",
    },
    "cloudStorageConfig": {
        "bucket": "bucket",
        "filenamePrefix": "log-",
        "filenameSuffix": ".avro",
        "filenameDatetimeFormat": "YYYY-MM-DD/hh_mm_ssZ",
        "avroConfig": {"writeMetadata": True, "useTopicSchema": True},
        "maxDuration": "60.500s",
        "maxBytes": "10000000000",
        "maxMessages": "1000",
    },
    "bigtableConfig": {
        "table": "projects/p/instances/i/tables/t",
        "appProfileId": "profile",
        "writeMetadata": True,
    },
}
SOURCES: list[Json] = [
    {"awsKinesis": {"streamArn": "a", "consumerArn": "b", "awsRoleArn": "c", "gcpServiceAccount": "d"}},
    {
        "cloudStorage": {
            "bucket": "bucket",
            "textFormat": {"delimiter": ";"},
            "minimumObjectCreateTime": "2026-01-02T03:04:05.000000006Z",
            "matchGlob": "**.txt",
        },
        "platformLogsSettings": {"severity": "WARNING"},
    },
    {"azureEventHubs": {"resourceGroup": "g", "namespace": "n", "eventHub": "h", "clientId": "c", "tenantId": "t"}},
    {"awsMsk": {"clusterArn": "a", "topic": "t", "awsRoleArn": "r", "gcpServiceAccount": "s"}},
    {"confluentCloud": {"bootstrapServer": "b:9092", "clusterId": "c", "topic": "t", "identityPoolId": "p"}},
]


@pytest.mark.parametrize("name", EXPORTS)
async def test_an_export_is_given_back_as_it_was_and_is_in_error(rest: Rest, name: str) -> None:
    await rest.create_topic()
    created = await rest.create_subscription(**{name: EXPORTS[name]})
    assert (created[name], created["state"]) == (EXPORTS[name], "RESOURCE_ERROR")
    assert await rest.ok("GET", rest.subscription()) == created
    assert (await rest.ok("GET", f"{rest.project}/subscriptions"))["subscriptions"] == [created]


@pytest.mark.parametrize("name", EXPORTS)
async def test_an_export_is_set_left_alone_and_cleared_by_the_mask(rest: Rest, name: str) -> None:
    await rest.create_topic()
    plain = await rest.create_subscription()
    assert plain["state"] == "ACTIVE"

    async def update(fields: Json, mask: str) -> Json:
        return await rest.ok("PATCH", rest.subscription(), {"subscription": fields, "updateMask": mask})

    exporting = await update({name: EXPORTS[name]}, name)
    assert (exporting[name], exporting["state"]) == (EXPORTS[name], "RESOURCE_ERROR")
    labelled = await update({"labels": {"a": "b"}}, "labels")
    assert labelled == exporting | {"labels": {"a": "b"}}
    assert await update({"labels": {}}, f"{name},labels") == plain
    await rest.publish("pulled")
    assert [text(m) for m in await rest.drain()] == ["pulled"]


async def test_messages_for_another_service_wait_and_cannot_be_pulled(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription(bigqueryConfig={"table": "p.d.t"})
    await rest.publish("waits")
    status, message = await rest.error("POST", f"{rest.subscription()}:pull", {"maxMessages": 1})
    assert (status, "has a bigqueryConfig and cannot be pulled" in message) == ("FAILED_PRECONDITION", True)
    body = {"subscription": {}, "updateMask": "bigqueryConfig"}
    await rest.ok("PATCH", rest.subscription(), body)
    assert [text(m) for m in await rest.drain()] == ["waits"]


@pytest.mark.parametrize(
    "fields",
    [
        {"bigqueryConfig": {"table": "t"}, "cloudStorageConfig": {"bucket": "b"}},
        {"bigtableConfig": {"table": "t"}, "pushConfig": {"pushEndpoint": "http://127.0.0.1:9/"}},
        {"bigqueryConfig": {"table": "t"}, "enableExactlyOnceDelivery": True},
    ],
    ids=["two exports", "push", "exactly once"],
)
async def test_a_subscription_delivers_in_one_way(rest: Rest, fields: Json) -> None:
    await rest.create_topic()
    status, message = await rest.error("PUT", rest.subscription(), {"topic": rest.topic(), **fields})
    assert (status, "cannot be used together" in message) == ("INVALID_ARGUMENT", True)
    for field in fields:
        assert field in message
    await rest.create_subscription()
    mask = ",".join(fields)
    body = {"subscription": fields, "updateMask": mask}
    assert (await rest.error("PATCH", rest.subscription(), body))[0] == "INVALID_ARGUMENT"
    assert (await rest.ok("GET", rest.subscription()))["state"] == "ACTIVE"


async def test_an_exporting_subscription_is_made_a_push_subscription_by_one_update_of_both(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription(cloudStorageConfig={"bucket": "b"})
    push = {"pushConfig": {"pushEndpoint": "http://127.0.0.1:9/"}}
    status, message = await rest.error("POST", f"{rest.subscription()}:modifyPushConfig", push)
    assert (status, "cloudStorageConfig" in message) == ("INVALID_ARGUMENT", True)
    body = {"subscription": push, "updateMask": "pushConfig,cloudStorageConfig"}
    updated = await rest.ok("PATCH", rest.subscription(), body)
    assert (updated["state"], "cloudStorageConfig" in updated) == ("ACTIVE", False)


@pytest.mark.parametrize(
    "fields", [{"bigqueryConfig": {"writeMetadata": True}}, {"cloudStorageConfig": {"maxBytes": "5"}}]
)
async def test_an_export_to_nowhere_is_refused(rest: Rest, fields: Json) -> None:
    await rest.create_topic()
    status, message = await rest.error("PUT", rest.subscription(), {"topic": rest.topic(), **fields})
    assert (status, next(iter(fields)) in message) == ("INVALID_ARGUMENT", True)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("bigqueryConfig", {"table": "t", "bogus": 1}),
        ("bigqueryConfig", {"table": 5}),
        ("cloudStorageConfig", {"bucket": "b", "textConfig": {}, "avroConfig": {}}),
        ("cloudStorageConfig", {"bucket": "b", "maxDuration": "soon"}),
        ("cloudStorageConfig", {"bucket": "b", "maxBytes": "99999999999999999999"}),
        ("bigtableConfig", {"table": "t" * 70_000}),
        ("bigtableConfig", {"table": "t\0"}),
    ],
)
async def test_what_is_no_config_is_refused_by_the_field_s_name(rest: Rest, field: str, value: Json) -> None:
    await rest.create_topic()
    status, message = await rest.error("PUT", rest.subscription(), {"topic": rest.topic(), field: value})
    assert status == "INVALID_ARGUMENT"
    assert field in message or "U+0000" in message
    assert len(message) < 1_000


@pytest.mark.parametrize("settings", SOURCES, ids=lambda settings: next(iter(settings)))
async def test_a_topic_that_imports_says_that_it_cannot_reach_its_source(rest: Rest, settings: Json) -> None:
    fields = {"ingestionDataSourceSettings": settings}
    created = await rest.create_topic(**fields)
    assert created == {"name": rest.topic(), "state": "INGESTION_RESOURCE_ERROR", **fields}
    assert await rest.ok("GET", rest.topic()) == created
    labels = {"topic": {"labels": {"a": "b"}}, "updateMask": "labels"}
    assert await rest.ok("PATCH", rest.topic(), labels) == created | {"labels": {"a": "b"}}
    body = {"topic": {}, "updateMask": "labels,ingestionDataSourceSettings"}
    assert await rest.ok("PATCH", rest.topic(), body) == {"name": rest.topic()}
    await rest.publish("published all the same")


async def test_what_only_the_service_says_of_a_config_is_not_stored(rest: Rest) -> None:
    """`state` is output only wherever it is."""
    kinesis = {"streamArn": "a", "state": "ACTIVE"}
    topic = await rest.create_topic(ingestionDataSourceSettings={"awsKinesis": kinesis})
    assert topic["ingestionDataSourceSettings"] == {"awsKinesis": {"streamArn": "a"}}
    created = await rest.create_subscription(bigqueryConfig={"table": "t", "state": "ACTIVE"})
    assert created["bigqueryConfig"] == {"table": "t"}
