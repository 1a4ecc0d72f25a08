"""The programs of examples/, as a newcomer runs them: twice, one after the other, on one broker."""

import re
import runpy
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator

import httpx
import pytest

from tests.fixtures.broker import NO_TLS, repository

pytestmark = [pytest.mark.slow, pytest.mark.ci]

EXAMPLES = repository() / "examples"
UNTIL_CTRL_C = {"subscribe.py", "webhook.py"}
SHARED = {"own_broker.py", "plain_http.py"}
PROGRAMS = sorted(path.name for path in EXAMPLES.glob("*.py") if path.name not in SHARED | UNTIL_CTRL_C)

# What each must print, on its first and on its second run (regular expressions, in this order).
SHOWN: dict[str, list[str]] = {
    "access.py": [
        "without credentials is refused: UNAUTHENTICATED",
        "billing may call publish",
        "billing is refused: PERMISSION_DENIED",
        "the sensors' key may call pull",
        "disabled, is refused: UNAUTHENTICATED",
    ],
    "apply.py": ["2 created", "by setFilter", "0 to create, 1 to update", 'the filter is now .* "fr"'],
    "change_filter.py": [r"of 2 messages .* 1 others", r"got \['order 1', 'order 4'\]"],
    "deduplication.py": ["the same id: True", r"got \['paid'\]"],
    "delay.py": [r"at once: \['now'\]", "to be published at", "to be published at", r"later: \['an hour later'\]"],
    "events.py": ["pubsub.subscription.paused projects/example-events/subscriptions/worker The database is moved."],
    "expiry.py": [r"got \['a price of an hour'\]"],
    "journal.py": ["It was acked at", "HANDED_OUT", "ACKED"],
    "open_telemetry.py": [r"\['ack worker', 'publish orders', 'receive worker'\]"],
    "own_transaction.py": [r"rows \[\(17, 'paid'\)\]", r"got \['order 17 is paid'\]", "the cart is acknowledged"],
    "priorities.py": [r"got \['an alarm', 'a receipt', 'a newsletter'\]"],
    "purge_as_expected.py": [
        r"would drop 2 messages",
        r"refused: .*count=3, expectedCount=2",
        r"left: \[\]",
    ],
    "redrive.py": ["1 dead letter, because of reject", "redriven: {'redriven': '1'}", r"got \['order 1'\]"],
    "retraction.py": ["outcome: retracted", r"got \['12.40'\]"],
    "schedules.py": ["next: ", "next: ", r"got \['close the books of 20"],
    "schemas.py": ["refused: .*total", "A-17"],
    "transforms.py": [r"got \['{\"id\":1,\"card\":\"\*\*\*\*\"}'\]"],
    "asyncio_worker.py": ["50 jobs done, at most 10 at a time"],
    "dead_letters.py": ["attempt 5 fails", "nobody can read", "DeliveryCount = 5", "rejected", "last year"],
    "exactly_once.py": ["the ack is SUCCESS", "first delivery is refused", "second delivery holds"],
    "expiring_subscriptions.py": ["31 days", "1 days", "never", "refused: .* 60s .* 24h"],
    "fan_out.py": [r"search +got \['ada signed up', 'grace signed up'\]", r"late +got \['grace signed up'\]"],
    "filter_on_trial.py": ["2 of 4 messages", "0 of 4 messages", "400 The filter is not valid"],
    "filters.py": [r"germany .* got \['order 1'\]", r"abroad .* 'order 4'\]", r"books .* 'order 4'\]", "refused: "],
    "first_message.py": [r"published (\d+)\nreceived \1 b'hello' \{'lang': 'en'\}"],
    "inbox.py": ["7 unread, next is 1 of 7", "4 unread", "2 unread", "0 unread", "1 unread", "letter 8"],
    "ordering_keys.py": ["'ada: [+]100', 'ada: -30', 'ada: -5'", r"\['ada: -30', 'ada: -5'\]"],
    "publish_batches.py": ["2000 messages are stored", "acknowledged 2000"],
    "push_digest.py": [r"with 5 messages: \['1', '2', '3', '4', '5'\]"],
    "push_oidc.py": ["verified: 'order 1' from broker@example.com, issued by http://"],
    "push_rate_limit.py": ["published 20 messages at once", "the other 10 took"],
    "push_signed.py": ["verified: order 1", "webhook-id msg_", "a stranger is refused: No matching signature"],
    "push_trouble.py": [
        "breaker is OPEN",
        "500 the shop's database is full",
        "'state': 'PAUSED'",
        "delivered: ACTIVE",
    ],
    "replay.py": [
        r"back to the snapshot.*\n +got \['order 2', 'order 3'\]",
        r"got \['order 1', .*\]",
        r"\['order 5'\]",
    ],
    "retention.py": [r"gets \['price 100', 'price 101', 'price 99'\]"],
    "retry_policy.py": ["failure 3", "delay of 1 s", r"after 1\.\d s", "acknowledged"],
}


def assert_shown(program: str, output: str) -> None:
    at = 0
    for pattern in SHOWN[program]:
        found = re.compile(pattern).search(output, at)
        assert found, f"{program} did not print {pattern!r}:\n{output}"
        at = found.end()


@pytest.mark.parametrize("program", PROGRAMS)
def test_an_example_runs_any_number_of_times(
    program: str, emulator_host: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)  # as where Python runs the file itself
    has_own_broker = "import own_broker" in (EXAMPLES / program).read_text()  # a new one for each run
    for _ in range(1 if has_own_broker else 2):
        runpy.run_path(str(EXAMPLES / program), run_name="__main__")
        assert_shown(program, capsys.readouterr().out)


def test_examples_leave_nothing_behind(broker_url: str) -> None:
    """But the one that shows a first message, in the project `demo`, which the README goes on to use."""
    texts = [path.read_text() for path in EXAMPLES.iterdir() if path.is_file()]
    projects = {name for text in texts for name in re.findall(r"projects/(example-[a-z-]+)", text)}
    assert len(projects) >= len(PROGRAMS) - 1
    with httpx.Client(base_url=f"{broker_url}/v1/", timeout=60, verify=NO_TLS) as client:
        for project in projects:
            for kind in ("topics", "subscriptions", "snapshots"):
                assert client.get(f"projects/{project}/{kind}").json() == {}


def test_the_example_without_a_library_runs_any_number_of_times(emulator_host: str) -> None:
    for _ in range(2):
        done = subprocess.run(
            ["sh", EXAMPLES / "rest_only.sh"], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert '"data":"aGVsbG8="' in done.stdout
        assert '"undeliveredMessages": 0' in done.stdout


class Running:
    """An example that goes on until Ctrl-C."""

    def __init__(self, program: str, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", EXAMPLES / program, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.first_line = self.line()

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def stop(self) -> None:
        """Ctrl-C: it ends, without a traceback."""
        self.process.send_signal(signal.SIGINT)
        rest, _ = self.process.communicate(timeout=30)
        assert (self.process.returncode, rest) == (0, "")


@pytest.fixture
def start_example() -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def start(*arguments: str) -> Running:
        started.append(Running(*arguments))
        return started[-1]

    yield start
    for running in started:
        running.process.kill()
        running.process.communicate()


@pytest.fixture
def demo(broker_url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{broker_url}/v1/projects/demo/", timeout=60, verify=NO_TLS) as client:
        yield client


def test_the_examples_that_wait_for_messages_print_them_and_end_by_ctrl_c(
    demo: httpx.Client, emulator_host: str, start_example: Callable[..., Running]
) -> None:
    """As in the README: a subscriber and a webhook, each in a terminal of its own, and messages by curl."""
    for _ in range(2):
        subscriber = start_example("subscribe.py")
        assert subscriber.first_line.startswith("listening on projects/demo/subscriptions/stream")
        webhook = start_example("webhook.py", "0")
        endpoint = webhook.first_line.removeprefix("listening on ").split(";")[0]
        pushed = {"topic": "projects/demo/topics/greetings", "pushConfig": {"pushEndpoint": endpoint}}
        demo.put("subscriptions/webhook", json=pushed).raise_for_status()
        message = {"data": "aGVsbG8=", "attributes": {"lang": "en"}}
        published = demo.post("topics/greetings:publish", json={"messages": [message]})
        [message_id] = published.raise_for_status().json()["messageIds"]
        for running in (subscriber, webhook):
            assert running.line() == f"received {message_id} b'hello' {{'lang': 'en'}}\n"
            running.stop()
        demo.delete("subscriptions/webhook").raise_for_status()


def test_every_example_is_in_the_list_of_them() -> None:
    listed = (EXAMPLES / "README.md").read_text()
    programs = {path.name for path in EXAMPLES.iterdir() if path.suffix in (".py", ".sh")}
    assert programs == set(re.findall(r"\]\((\w+\.(?:py|sh))\)", listed))
    assert set(PROGRAMS) == set(SHOWN)


def test_the_readme_shows_the_example_as_it_is() -> None:
    [shown] = re.findall(r"```python\n(.*?)```", (repository() / "README.md").read_text(), re.DOTALL)
    assert textwrap.indent(shown, "    ") in (EXAMPLES / "first_message.py").read_text()
