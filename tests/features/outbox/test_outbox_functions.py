"""What an application may write to the outbox in its own transaction, and what its role may see (J7)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from psycopg import errors

from broker.core.catalog import topic_rows as topics
from broker.core.log.messages import encode_messages
from broker.db.database_url import DEFAULT_SCHEMA
from broker.features.outbox.application_functions import CannotGrant, Grant, grant, list_grants, make_role, revoke
from broker.model.ack_id import ack_ids_of
from broker.model.errors import BrokerError
from broker.model.freeze import Freeze
from broker.model.message import NewMessage
from broker.model.publish_limits import TRACE_KEYS, check_messages, check_request_size
from broker.model.timestamps import format_timestamp
from broker.model.topic import Topic
from broker.model.topic_extensions import TopicExtensions
from tests.fixtures.application import PROJECT, Application, publish, settle
from tests.fixtures.log import SECOND, Log

TOPIC, SUBSCRIPTION = "projects/p/topics/t", "projects/p/subscriptions/t-sub"


async def outbox(log: Log) -> list[tuple[Any, ...]]:
    return await log.rows("SELECT convert_from(data, 'UTF8'), attributes, ordering_key FROM outbox ORDER BY n")


async def test_it_is_staged_with_the_row_change_or_not_at_all(log: Log, application: Application) -> None:
    with application.session() as session:
        session.execute("INSERT INTO orders VALUES (1)")
        first = publish(session, "placed", {"order": "1"}, "k")
        assert publish(session, "paid", None, None) > first
    with application.session() as session:
        session.execute("INSERT INTO orders VALUES (2)")
        publish(session, "gone")
        session.rollback()
    with application.session() as session:
        publish(session, "kept")
        session.execute("SAVEPOINT before")
        publish(session, "undone")
        session.execute("ROLLBACK TO before")
    assert await outbox(log) == [("placed", {"order": "1"}, "k"), ("paid", None, None), ("kept", None, None)]
    with application.session() as session:
        assert session.execute("SELECT id FROM orders").fetchall() == [(1,)]


def _check(message: NewMessage) -> None:
    check_messages([message])
    check_request_size(TOPIC, [message], encode_messages([message]).size)


# Each is refused by the API, too.
_REFUSED: list[tuple[Any, Any, Any, str]] = [
    (None, None, None, "is empty"),
    (b"", {}, "k", "is empty"),
    (b"x", {str(n): "" for n in range(101)}, None, "has 101 entries"),
    (b"x", {"": "v"}, None, "empty key"),
    (b"x", {"ä" * 129: "v"}, None, "over 256 bytes"),
    (b"x", {"k": "ä" * 513}, None, "is too long: 1026 bytes"),
    (b"x", {"GooGle": "v"}, None, "may not start with 'goog'"),
    (b"x", {"n": 1}, None, "must be a string, and is of type number"),
    (b"x", {"n": None}, None, "must be a string, and is of type null"),
    (b"x", ["a"], None, "must be a JSON object, and is of type array"),
    (b"x", None, "k" * 1025, "ordering_key is too long"),
    (b"x" * 10_000_001, None, None, "is too large"),
]


@pytest.mark.parametrize(("data", "attributes", "key", "reported"), _REFUSED)
async def test_what_the_api_would_refuse_is_refused_and_stages_nothing(
    log: Log, application: Application, data: bytes | None, attributes: Any, key: str | None, reported: str
) -> None:
    with application.session() as session, pytest.raises(errors.InvalidParameterValue, match=reported):
        publish(session, data, attributes, key)
    if isinstance(attributes, dict | None) and all(isinstance(v, str) for v in (attributes or {}).values()):
        with pytest.raises(BrokerError):
            _check(NewMessage(data=data or b"", attributes=attributes or {}, ordering_key=key or ""))
    assert await outbox(log) == []


async def test_what_is_just_within_the_limits_is_taken(log: Log, application: Application) -> None:
    most = {"ä" * 128: "ä" * 512} | {str(n): "" for n in range(96)} | dict.fromkeys(TRACE_KEYS, "x")
    with application.session() as session:
        publish(session, b"", most, "k" * 1024)
        publish(session, b"x" * 9_990_000)
    rows = await log.rows("SELECT n FROM outbox")
    assert len(rows) == 2


@pytest.mark.parametrize(
    ("topic", "error", "reported"),
    [
        ("projects/p/topics/none", errors.UndefinedObject, r"Topic not found \(resource=none\)"),
        (
            "projects/other/topics/t",
            errors.InsufficientPrivilege,
            "may not publish or acknowledge in projects/other",
        ),
        ("t", errors.InvalidParameterValue, r"\(name=t\). It must be projects/\{project\}/topics/\{topic\}"),
        (None, errors.InvalidParameterValue, "Invalid"),
        ("projects/p/subscriptions/t-sub", errors.InvalidParameterValue, "Invalid"),
    ],
)
async def test_a_topic_must_be_there_and_of_a_project_with_a_grant(
    log: Log, application: Application, topic: str, error: type[Exception], reported: str
) -> None:
    with application.session() as session, pytest.raises(error, match=reported):
        publish(session, "x", topic=topic)


async def test_topics_that_take_nothing_or_ask_for_more_than_sql_can_check_are_refused(
    log: Log, application: Application
) -> None:
    async with log.database.transaction() as connection:
        await topics.freeze_topic(connection, topic=log.topic, freeze=Freeze("moving", log.start, "me"))
    with application.session(autocommit=True) as session:
        with pytest.raises(errors.ObjectNotInPrerequisiteState, match=r"Topic is frozen since .*: moving"):
            publish(session, "x")
        await log.execute("UPDATE topics SET frozen = NULL, schema_id = 7")
        with pytest.raises(errors.FeatureNotSupported, match="has a schema, which SQL cannot check"):
            publish(session, "x")
        done = '[{"compression":{"compressionMode":"COMPRESS","compressionAlgorithm":"ZLIB"},"disabled":%s}]'
        await log.execute(f"UPDATE topics SET schema_id = NULL, message_transforms = '{done % 'false'}'")
        with pytest.raises(errors.FeatureNotSupported, match="has transforms, which SQL cannot run"):
            publish(session, "x")
        await log.execute(f"UPDATE topics SET message_transforms = '{done % 'true'}'")
        publish(session, "x")
    assert len(await outbox(log)) == 1


async def delaying(log: Log) -> None:
    async with log.database.transaction() as connection:
        await topics.update_topic(connection, topic=replace(log.topic, extensions=TopicExtensions(delay=True)))


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ("broker-deliver-at", "tomorrow"),
        ("broker-deliver-at", "2026-02-30T00:00:00Z"),
        ("broker-deliver-at", "2026-11-21T24:00:00Z"),
        ("broker-deliver-at", "2026-11-21T23:59:60Z"),
        ("broker-deliver-at", "2026-11-21 07:00:00Z"),
        ("broker-deliver-at", "0000-01-01T00:00:00Z"),
        ("broker-deliver-at", "9999-12-31T23:59:59Z"),
        ("broker-delay", "5 minutes"),
        ("broker-delay", "\N{ARABIC-INDIC DIGIT ONE}s"),
        ("broker-delay", "2678401s"),
        ("broker-delay", "999999999999s"),
    ],
)
async def test_times_that_cannot_be_read_are_refused_on_topics_that_delay(
    log: Log, application: Application, attribute: str, value: str
) -> None:
    with application.session(autocommit=True) as session:
        publish(session, "on other topics it is an attribute like any", {attribute: value})
        await delaying(log)
        with pytest.raises(errors.InvalidParameterValue, match=rf"attributes.*{value[:4]}"):
            publish(session, "x", {attribute: value})
    assert len(await outbox(log)) == 1


async def test_times_that_can_be_read_are_taken(log: Log, application: Application) -> None:
    await delaying(log)
    good = [
        "2026-11-21T07:00:00Z",
        "2020-02-29t23:59:59.123456789+05:30",
        format_timestamp(log.start + 30 * 86400 * SECOND),
    ]
    with application.session(autocommit=True) as session:
        for value in good:
            publish(session, "x", {"broker-deliver-at": value})
        for value in ("0s", "-5.5s", "2678400s", "-315576000000s"):
            publish(session, "x", {"broker-delay": value})
        with pytest.raises(errors.InvalidParameterValue, match="both"):
            publish(session, "x", {"broker-delay": "1s", "broker-deliver-at": good[0]})


async def test_acks_are_staged_if_they_are_the_subscriptions(log: Log, application: Application) -> None:
    await log.publish("a", "b")
    [delivery] = await log.pull()
    mine = ack_ids_of(log.subscription.subscription_id, delivery)
    [other, *_] = ack_ids_of(log.subscription.subscription_id + 1, delivery)
    bad: list[tuple[tuple[Any, ...], str]] = [
        ((), "not specified an ack ID"),
        ((None,), "ack_id=null"),
        ((mine[0], "x"), "ack_id=x"),
        ((other,), f"ack_id={other}"),
        ((mine[0] * 2,), "none of this"),
        (tuple(mine[:1]) * 10_001, "has 10001 ids"),
    ]
    with application.session(autocommit=True) as session:
        for ids, reported in bad:
            with pytest.raises(errors.InvalidParameterValue, match=reported):
                settle(session, SUBSCRIPTION, *ids)
        with pytest.raises(errors.UndefinedObject, match=r"Subscription does not exist \(resource=none\)"):
            settle(session, "projects/p/subscriptions/none", *mine)
        with pytest.raises(errors.InsufficientPrivilege, match="projects/other"):
            settle(session, "projects/other/subscriptions/t-sub", *mine)
        settle(session, SUBSCRIPTION, *mine)
        settle(session, SUBSCRIPTION, mine[0], how="nack")
    assert await log.rows("SELECT ack_ids, nack FROM outbox ORDER BY n") == [(mine, False), (mine[:1], True)]


# --- roles ------------------------------------------------------------------------------------------------------


async def test_the_role_sees_nothing_of_the_brokers(log: Log, application: Application) -> None:
    with application.session(autocommit=True) as session:
        publish(session, "x")
        for statement in (
            "SELECT FROM broker.outbox",
            "SELECT FROM broker.topics",
            "DELETE FROM broker.application_grants",
            "SELECT broker.write_outbox_message('projects/p/topics/t', 'x', NULL, NULL)",
            "SELECT broker.application_role('projects/p')",
            "CREATE TABLE broker.x ()",
            "CREATE FUNCTION pubsub.x() RETURNS int LANGUAGE sql AS 'SELECT 1'",
            "ALTER FUNCTION pubsub.publish SET search_path = shop",
        ):
            with pytest.raises(errors.InsufficientPrivilege):
                session.execute(statement)


async def test_nothing_that_the_role_makes_is_taken_for_the_brokers(log: Log, application: Application) -> None:
    """The functions have the rights of their owner: they look nowhere but in the broker's schema."""
    with application.session() as session:
        session.execute("CREATE TABLE topics (topic_id int, name text, delay bool)")
        session.execute("CREATE TEMP TABLE topics (topic_id int, name text, delay bool)")
        session.execute("CREATE TEMP TABLE outbox (n int)")
        session.execute("CREATE FUNCTION shop.cardinality(text[]) RETURNS int LANGUAGE sql AS 'SELECT 1/0'")
        session.execute("SET standard_conforming_strings = off")
        session.execute("SET backslash_quote = off")
        publish(session, "x", {"a": "b\\'"})
    assert len(await outbox(log)) == 1


def _role(application: Application, name: str, statement: str) -> str:
    role = f"{application.role}-{name}"
    with psycopg.connect(application.admin_url, autocommit=True) as admin:
        admin.execute(statement.format(role=f'"{role}"', shop=f'"{application.role}"'))
    return role


@pytest.fixture
def member(application: Application) -> Any:
    role = _role(application, "member", "CREATE ROLE {role} LOGIN; GRANT {shop} TO {role}")
    yield role
    _role(application, "member", "DROP ROLE {role}")


_STAGES_FOR_OTHERS = """
    CREATE FUNCTION shop.staging(id int, role text) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$
    BEGIN
        IF session_user <> role THEN
            PERFORM set_config('broker.outbox_' || (
                SELECT oid FROM pg_class WHERE relname = 'outbox' AND relnamespace = 'broker'::regnamespace
            ), pg_current_xact_id()::text, true);
            PERFORM pubsub.publish('projects/other/topics/t', convert_to(session_user, 'UTF8'));
        END IF;
        RETURN id;
    END $$;
    CREATE TABLE shop.bait (id int);
    CREATE INDEX ON shop.bait (shop.staging(id, '{role}'));
    INSERT INTO shop.bait VALUES (1)
"""


@pytest.fixture
def other_role(application: Application) -> Any:
    """Which may write to the outbox for another project."""
    role = _role(application, "other", "CREATE ROLE {role}")
    grant(application.admin_url, schema=DEFAULT_SCHEMA, role=role, project="projects/other")
    yield role
    _role(application, "other", "DROP OWNED BY {role}; DROP ROLE {role}")


async def test_a_maintenance_command_lends_nobody_the_grants_of_its_session(
    log: Log, application: Application, other_role: str
) -> None:
    """ANALYZE runs functions of the table's owner; autovacuum does so with the session of a superuser."""
    async with log.database.transaction() as connection:
        topic = Topic(name="projects/other/topics/t")
        assert await topics.insert_topic(connection, topic=topic, shard_count=1, now=log.start)
    with application.session(autocommit=True) as session:
        session.execute(_STAGES_FOR_OTHERS.format(role=application.role))
    with psycopg.connect(application.admin_url, autocommit=True) as admin:
        with pytest.raises(errors.InsufficientPrivilege, match="security-restricted operation"):
            admin.execute("ANALYZE shop.bait")
        publish(admin, "of a superuser", topic=topic.name)
    assert await outbox(log) == [("of a superuser", None, None)]


async def test_members_have_the_rights_of_the_role_and_who_sets_another_has_not(
    log: Log, application: Application, member: str
) -> None:
    with psycopg.connect(application.as_role(member), autocommit=True) as session:
        publish(session, "as a member")
        session.execute(f'SET ROLE "{application.role}"')
        publish(session, "as the role")
    other = _role(application, "other", "CREATE ROLE {role}; GRANT {role} TO {shop}")
    try:
        with application.session(autocommit=True) as session:
            session.execute(f'SET ROLE "{other}"')
            with pytest.raises(errors.InsufficientPrivilege):  # not even the schema is open to it
                publish(session, "x")
            with psycopg.connect(application.admin_url, autocommit=True) as admin:
                admin.execute(f'GRANT USAGE ON SCHEMA pubsub TO "{other}"')
                admin.execute(f'GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA pubsub TO "{other}"')
            with pytest.raises(errors.InsufficientPrivilege, match="other may not publish or acknowledge"):
                publish(session, "x")
    finally:
        _role(application, "other", "DROP OWNED BY {role}; DROP ROLE {role}")
    assert await log.rows("SELECT role FROM outbox ORDER BY n") == [(member,), (application.role,)]


async def test_a_grant_is_of_a_project_is_listed_and_is_taken_back(log: Log, application: Application) -> None:
    url, role = application.admin_url, application.role
    application.grant("projects/other")
    application.grant()  # once more
    both = [Grant(role, "projects/other", ("pubsub",)), Grant(role, PROJECT, ("pubsub",))]
    assert list_grants(url, schema="broker") == both
    with application.session(autocommit=True) as session:
        with pytest.raises(errors.UndefinedObject):
            publish(session, "x", topic="projects/other/topics/t")
        assert revoke(url, schema="broker", role=role, project=PROJECT)
        with pytest.raises(errors.InsufficientPrivilege, match="projects/p"):
            publish(session, "x")
        assert not revoke(url, schema="broker", role=role, project=PROJECT)
        assert revoke(url, schema="broker", role=role, project="projects/other")
        with pytest.raises(errors.InsufficientPrivilege, match="schema pubsub"):
            publish(session, "x")
    assert list_grants(url, schema="broker") == []


async def test_a_role_that_is_made_anew_has_nothing_of_the_one_before(log: Log, application: Application) -> None:
    url, role = application.admin_url, application.role
    application.grant("projects/other")
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(f'DROP OWNED BY "{role}"')
        admin.execute(f'DROP ROLE "{role}"')
        assert all(not each.functions for each in list_grants(url, schema="broker"))
        admin.execute(f'CREATE ROLE "{role}" LOGIN')
    application.grant()
    assert list_grants(url, schema="broker") == [Grant(role, PROJECT, ("pubsub",))]


async def test_what_a_role_makes_in_its_own_schema_does_not_keep_its_grant(
    log: Log, application: Application
) -> None:
    url, role = application.admin_url, application.role
    with application.session(autocommit=True) as session:
        session.execute("""
            CREATE FUNCTION shop.publish(text) RETURNS text LANGUAGE sql SET search_path = broker, pg_temp
            AS $$ SELECT 'write_outbox_message(' $$
        """)
    assert [each.functions for each in list_grants(url, schema="broker")] == [("pubsub",)]
    assert revoke(url, schema="broker", role=role, project=PROJECT)
    assert list_grants(url, schema="broker") == []


async def test_a_role_whose_name_postgresql_would_cut_is_refused(log: Log, application: Application) -> None:
    with psycopg.connect(application.admin_url, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {'r' * 63} LOGIN")
    with pytest.raises(CannotGrant, match="64 bytes, the maximum is 63"):
        grant(application.admin_url, schema="broker", role="r" * 64, project=PROJECT)
    with psycopg.connect(application.admin_url, autocommit=True) as admin:
        admin.execute(f"DROP ROLE {'r' * 63}")


async def test_a_role_of_the_name_of_the_functions_schema_is_not_made(application: Application) -> None:
    with pytest.raises(CannotGrant, match="called pubsub, and the role of that name would own it"):
        make_role(application.admin_url, role="pubsub")
    with psycopg.connect(application.admin_url) as admin:
        assert admin.execute("SELECT FROM pg_roles WHERE rolname = 'pubsub'").fetchone() is None


@pytest.mark.one_server("Citus does not quote the name of a schema when it tells nodes of a grant")
async def test_functions_of_another_installation_or_program_are_left_alone(
    log: Log, application: Application
) -> None:
    with pytest.raises(CannotGrant, match="there is no role nobody"):
        grant(application.admin_url, schema="broker", role="nobody", project=PROJECT)
    await log.execute("CREATE SCHEMA theirs CREATE TABLE theirs.deals ()")
    with pytest.raises(CannotGrant, match=r"has what is not the broker's \(deals\)"):
        application.grant(functions="theirs")
    await log.execute("ALTER FUNCTION pubsub.publish SET search_path = elsewhere, pg_temp")
    with pytest.raises(CannotGrant, match="those of the installation in elsewhere"):
        application.grant()
    application.grant(functions="Second One")
    with application.session() as session:
        publish(session, "x", functions='"Second One"')
    assert len(await outbox(log)) == 1


# --- bounds and wakes -------------------------------------------------------------------------------------------


async def test_what_is_staged_is_bounded(log: Log, application: Application) -> None:
    with application.session(autocommit=True) as session:
        n = publish(session, "x")
        await log.execute(f"UPDATE outbox_progress SET relayed_to = {n} - 250000")
        with pytest.raises(errors.ConfigurationLimitExceeded, match="Too much is staged that no broker has taken"):
            publish(session, "x")
        await log.execute(f"UPDATE outbox_progress SET relayed_to = {n}")
        publish(session, "x")
    assert len(await outbox(log)) == 2


async def test_a_project_that_is_behind_uses_up_the_bound_of_no_other(log: Log, application: Application) -> None:
    await log.publish("a")
    [delivery] = await log.pull()
    ack_ids = ack_ids_of(log.subscription.subscription_id, delivery)
    with application.session(autocommit=True) as session:
        n = publish(session, "x")
        await log.execute(
            f"UPDATE outbox_progress SET relayed_to = {n},"
            f" behind = ARRAY['projects/other'], behind_to = {n} - 250000"
        )
        publish(session, "not behind")
        await log.execute("UPDATE outbox_progress SET behind = ARRAY['projects/other', 'projects/p']")
        with pytest.raises(errors.ConfigurationLimitExceeded):
            publish(session, "behind")
        with pytest.raises(errors.ConfigurationLimitExceeded):
            settle(session, SUBSCRIPTION, *ack_ids)
    assert len(await outbox(log)) == 2


@pytest.fixture
def notified(application: Application) -> Any:
    """How many notifications came since it was asked last."""
    with psycopg.connect(application.admin_url, autocommit=True) as listener:
        listener.execute('LISTEN "broker_outbox.broker"')

        def count() -> int:
            return len(list(listener.notifies(timeout=0.05)))

        yield count


async def test_a_commit_wakes_brokers_once_unless_one_is_awake(
    log: Log, application: Application, notified: Callable[[], int]
) -> None:
    with application.session() as session:
        publish(session, "a")
        publish(session, "b")
        assert notified() == 0
        session.commit()
        assert notified() == 1
        with session.transaction():
            session.execute("SAVEPOINT before")
            publish(session, "undone")
            session.execute("ROLLBACK TO before")
            publish(session, "still the first")
        assert notified() == 1
        await log.execute("UPDATE outbox_progress SET awake_until = clock_timestamp() + interval '1 min'")
        publish(session, "c")
        session.commit()
        assert notified() == 0
        await log.execute("UPDATE outbox_progress SET awake_until = '-infinity'")
        publish(session, "d")
        session.rollback()
        assert notified() == 0
