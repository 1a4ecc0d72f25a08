"""What commands note beside an answer, and the short names, times and durations that they take."""

import json
import time
from base64 import b64encode
from collections.abc import Iterator

import pytest

from broker.cli.main import COMMANDS
from broker.cli.server_commands import Command
from broker.client.command_line import guess
from broker.client.words import short_time
from broker.features.declarations.form import comparable, exported, readable
from tests.cli.client.answering import AnsweringServer, error_answer
from tests.cli.client.terminal import Terminal

RECEIVED = b'{"receivedMessages": [{"ackId": "a:1", "message": {"messageId": "7", "data": "b25l"}}]}'
ROLES = ["roles/pubsub.publisher", "roles/pubsub.viewer", "roles/viewer", "roles/pubsub.subscriber"]
EMAIL = "billing@shop.iam.broker.internal"


@pytest.fixture
def shop(terminal: Terminal, server: AnsweringServer, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("BROKER_URL", server.url)
    monkeypatch.setenv("BROKER_PROJECT", "shop")
    return terminal


@pytest.fixture
def new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def _listing_roles() -> dict[str, tuple[int, bytes]]:
    """The predefined roles; the project has none of its own."""
    roles = [{"name": role} for role in ROLES]
    return {"/shop/roles": (200, b"{}"), "/roles": (200, json.dumps({"roles": roles}).encode())}


def test_a_pull_says_when_messages_are_redelivered(shop: Terminal, server: AnsweringServer) -> None:
    server.answers = {":pull": (200, RECEIVED), "/billing": (200, b'{"ackDeadlineSeconds": 30}')}
    printed = " ".join(shop.type("broker pull billing").text.split())
    assert "This message is redelivered at 20" in printed
    assert "(ack deadline 30 s) unless acknowledged" in printed
    assert "redelivered" not in shop.type("broker pull billing --ack").text
    server.answers["/billing"] = error_answer(403, "PERMISSION_DENIED")
    done = shop.type("broker pull billing")
    assert done.code == 0
    assert "redelivered when the ack deadline has passed" in " ".join(done.text.split())


def test_a_pull_of_a_paused_subscription_says_since_when_by_whom_and_why(
    shop: Terminal, server: AnsweringServer
) -> None:
    pause = {"paused": True, "pausedReason": "It moves.", "pauseTime": "2026-11-26T16:56:54.521Z"}
    server.answers = {"/snapshot": (200, json.dumps(pause | {"pausedBy": "user:ann@example.com"}).encode())}
    assert shop.pipe("broker pull billing").text == (
        "billing is paused since 2026-11-26 16:56:54Z by user:ann@example.com: It moves. "
        "`broker sub resume billing` ends the pause.\n"
    )
    for answer in ((200, b"{}"), error_answer(403, "PERMISSION_DENIED"), (404, b"")):
        server.answers["/snapshot"] = answer
        assert shop.pipe("broker pull billing").text == "There is no message to deliver now.\n"


def test_a_publish_says_which_messages_were_repeats(shop: Terminal, server: AnsweringServer) -> None:
    server.answer = (200, b'{"messageIds": ["7", "8", "7"], "repeats": [2]}')
    assert shop.pipe("broker publish orders a b a").text == (
        "7\n8\n7\nRepeated: 1 of 3 messages were published before, and not stored again: message 7.\n"
    )
    lines = shop.pipe("broker publish orders a b a --json").text.splitlines()
    assert [json.loads(line) for line in lines] == [
        {"messageId": "7"},
        {"messageId": "8"},
        {"messageId": "7", "repeated": True},
    ]
    server.answer = (200, b'{"messageIds": ["7"]}')
    assert shop.pipe("broker publish orders a").text == "7\n"


def test_an_ack_deadline_is_a_duration(shop: Terminal, server: AnsweringServer) -> None:
    for given, seconds in (("30", 30), ("30s", 30), ("2m", 120)):
        assert shop.pipe(f"broker sub create billing --topic orders --ack-deadline {given}").code == 0
        assert json.loads(server.sent[-1])["ackDeadlineSeconds"] == seconds
    done = shop.pipe("broker sub create billing --topic orders --ack-deadline 10500ms")
    assert (done.code, "--ack-deadline must be a whole number of seconds" in done.text) == (2, True)


@pytest.mark.usefixtures("new_york")
def test_a_time_without_a_zone_is_local_time_with_a_warning(shop: Terminal, server: AnsweringServer) -> None:
    done = shop.pipe("broker seek billing --time 2026-11-26T13:00")
    assert "--time 2026-11-26T13:00:00 has no time zone; taken as 2026-11-26T13:00:00-05:00" in done.text
    assert json.loads(server.sent[-1])["time"] == "2026-11-26T18:00:00.000Z"
    for zoned in ("2026-11-26T13:00:00Z", "2026-11-26T13:00:00+01:00", "1h"):
        assert "time zone" not in shop.pipe(f"broker seek billing --time {zoned}").text


def test_times_are_printed_with_their_zone() -> None:
    assert short_time("2026-11-26T13:00:00.123Z") == "2026-11-26 13:00:00Z"
    assert short_time(None) == ""


def test_nothing_is_guessed_below_a_likeness() -> None:
    assert guess("event", ["serve", "settings"]) == ""
    assert guess("sevre", ["serve", "settings"]) == "; did you mean serve?"


def test_help_names_what_is_most_like_an_unknown_topic(terminal: Terminal) -> None:
    assert "Durations are" in terminal.pipe("broker help times").text
    assert "Usage: broker sub ack " in terminal.pipe("broker help sub ack").text
    for words, said in (
        ("tims", "did you mean times?"),
        ("sub akc", "did you mean ack?"),
        ("pull x", "no commands"),
    ):
        done = terminal.pipe(f"broker help {words}")
        assert (done.code, said in done.text) == (2, True), done.text


def test_short_names_of_accounts_members_roles_and_resources(shop: Terminal, server: AnsweringServer) -> None:
    server.answers = {
        **_listing_roles(),
        ":getIamPolicy": (200, b"{}"),
    }
    done = shop.pipe("broker auth policy add topics/orders --role publisher --member billing")
    assert done.code == 0, done.text
    assert server.got[-1][0] == "/v1/projects/shop/topics/orders:setIamPolicy"
    binding = {"role": "roles/pubsub.publisher", "members": [f"serviceAccount:{EMAIL}"]}
    assert json.loads(server.sent[-1])["policy"]["bindings"] == [binding]
    assert shop.pipe("broker auth accounts disable billing").code == 0
    assert server.got[-1][0] == f"/v1/projects/-/serviceAccounts/{EMAIL}:disable"


def test_an_update_of_a_setting_takes_its_full_name(shop: Terminal, server: AnsweringServer) -> None:
    server.answers = {"/other/maskingRules/cards": (200, b"{}")}
    done = shop.type("broker mask update projects/other/maskingRules/cards --field '$.pin'")
    assert done.text == "Changed the masking rule projects/other/maskingRules/cards.\n"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ("topics/orders --role publsher --member billing", 3, "did you mean roles/pubsub.publisher?"),
        ("topics/orders --role roles/pubsub.publishr --member billing", 3, "did you mean roles/pubsub.publisher?"),
        ("topics/orders --role viewer --member billing", 2, "is one of roles/pubsub.viewer and roles/viewer"),
        ("topcs/orders --role publisher --member billing", 2, "did you mean topics?"),
        ("orders --role publisher --member billing", 2, "RESOURCE must be projects/PROJECT, topics/ID, "),
        ("topics/orders --role publisher --member ann@example.com", 2, "such as user:ann@example.com"),
        ("topics/orders --role publisher --member x", 2, "account_id must have 6 to 30"),
    ],
)
def test_wrong_names_are_refused_with_the_nearest(
    arguments: str, code: int, said: str, shop: Terminal, server: AnsweringServer
) -> None:
    server.answers = _listing_roles()
    done = shop.pipe(f"broker auth policy add {arguments}")
    assert (done.code, said in done.text) == (code, True), done.text
    assert not any(path.endswith(":setIamPolicy") for path, _ in server.got)


def test_an_unknown_account_is_answered_with_the_nearest(shop: Terminal, server: AnsweringServer) -> None:
    server.answer = error_answer(404, "NOT_FOUND")
    server.answers = {"/serviceAccounts": (200, json.dumps({"accounts": [{"email": EMAIL}]}).encode())}
    done = shop.pipe("broker auth keys list biling")
    assert (done.code, f"did you mean {EMAIL}?" in done.text) == (3, True), done.text


def test_a_caller_that_may_not_list_roles_gives_whole_names(shop: Terminal, server: AnsweringServer) -> None:
    server.answers = {"/roles": error_answer(403, "PERMISSION_DENIED"), ":getIamPolicy": (200, b"{}")}
    done = shop.pipe("broker auth policy add topics/orders --role publisher --member billing")
    assert (done.code, "must be a whole name" in done.text) == (2, True)
    assert shop.pipe("broker auth policy add topics/orders --role roles/any --member billing").code == 0


def test_backup_restored_takes_the_options_of_backup_check() -> None:
    check, restored = COMMANDS["backup check"], COMMANDS["backup restored"]
    assert isinstance(check, Command)
    assert isinstance(restored, Command)
    assert set(check.settings) - set(restored.settings) == set()


def test_what_export_writes_is_what_apply_reads() -> None:
    written = [readable("interval", f"{seconds}s") for seconds in (604800, 86400, 5400, 600, 90, 0, 0.5)]
    assert written == ["7d", "1d", "1h30m", "10m", "1m30s", "0s", "0.5s"]
    for data, kept in (("close up\n", "text"), ("\x00", "data")):
        message = {"data": b64encode(data.encode()).decode(), "attributes": {"interval": "600s"}}
        schedule = {"name": "projects/p/schedules/s", "topic": "projects/p/topics/t", "interval": "5400s"}
        body = exported(schedule | {"message": message}, "schedules", "projects/p")
        assert kept in body["message"]
        assert body["message"]["attributes"] == {"interval": "600s"}
        assert comparable(body, "schedules", "projects/p") == comparable(
            schedule | {"message": message}, "schedules", "projects/p"
        )
