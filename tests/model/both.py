"""The broker and the model side by side: each method calls the one over HTTP, the other directly, and compares.

A test of a bug that was found is a few calls of these methods; the state machine makes them up.
"""

import base64
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from tests.model.model import (
    MAX_ATTEMPTS,
    MILLISECOND,
    REPEATS_KNOWN,
    SHORTEST_SNAPSHOT_LIFE,
    SNAPSHOT_LIFE,
    Filter,
    Message,
    Model,
    Options,
    Scheduled,
    Snapshot,
    Standing,
    Subscription,
    Topic,
    Verdict,
)
from tests.model.ordering import begin_run, check_run, keyed
from tests.model.running_broker import JITTER, RunningBroker

Json = dict[str, Any]


def parse_time(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def format_time(time: datetime) -> str:
    return time.astimezone(UTC).isoformat().replace("+00:00", "Z")


class Both:
    """Names are short ("t", "s"); each instance works in a project of its own."""

    def __init__(self, broker: RunningBroker, project: str) -> None:
        self.broker = broker
        self.project = project
        self.model = Model(broker.now, JITTER)
        self._published = 0

    # --- the wire ----------------------------------------------------------------------------------------

    def _name(self, kind: str, name: str) -> str:
        return f"projects/{self.project}/{kind}/{name}"

    def _topic(self, name: str) -> str:
        return self._name("topics", name)

    def _subscription(self, name: str) -> str:
        return self._name("subscriptions", name)

    def _snapshot(self, name: str) -> str:
        return self._name("snapshots", name)

    def _call(
        self, method: str, path: str, body: Json | None = None, *, client: httpx.Client | None = None
    ) -> tuple[str, Json]:
        """The canonical code, "OK" for success, and the answer's or the error's body."""
        response = (client or self.broker.client).request(method, f"/v1/{path}", json=body)
        answer: Json = response.json()
        if response.status_code == 200:
            return "OK", answer
        error: Json = answer["error"]
        assert error["code"] == response.status_code
        return str(error["status"]), error

    def _expect(self, code: str, method: str, path: str, body: Json | None = None) -> Json:
        got, answer = self._call(method, path, body)
        assert got == code, (got, answer)
        return answer

    # --- topics ------------------------------------------------------------------------------------------

    def create_topic(self, name: str, retention: timedelta | None = None) -> None:
        exists = self._topic(name) in self.model.topics
        window = {"window": f"{REPEATS_KNOWN.total_seconds():.0f}s"}
        body: Json = {"extensions": {"delay": True, "expiry": True, "deduplication": window}}
        if retention is not None:
            body["messageRetentionDuration"] = f"{retention.total_seconds():.0f}s"
        self._expect("ALREADY_EXISTS" if exists else "OK", "PUT", self._topic(name), body)
        if not exists:
            self.model.topics[self._topic(name)] = Topic(self._topic(name), retention)
            self.model.dead_letter_topic_changed(self._topic(name))

    def delete_topic(self, name: str) -> None:
        exists = self._topic(name) in self.model.topics
        self._expect("OK" if exists else "NOT_FOUND", "DELETE", self._topic(name))
        if exists:
            self.model.delete_topic(self._topic(name))

    def publish(self, topic: str, count: int = 1, key: str = "", **attributes: str) -> None:
        """Each message has a text of its own: m1, m2, …"""
        texts = self._texts(count)
        body = {"messages": [message_json(text, attributes, key) for text in texts]}
        exists = self.model.topics.get(self._topic(topic))
        answer = self._expect("OK" if exists else "NOT_FOUND", "POST", f"{self._topic(topic)}:publish", body)
        if exists:
            for text, message_id in zip(texts, answer["messageIds"], strict=True):
                self.model.publish(exists, Message(text, attributes, key, self.model.now, message_id))

    def _texts(self, count: int) -> list[str]:
        self._published += count
        return [f"m{n + 1}" for n in range(self._published - count, self._published)]

    def _publish_each(self, topic: str, said: Sequence[dict[str, str]], key: str) -> list[Message]:
        """In one request a message with each of these attributes; for the model to be told of."""
        texts = self._texts(len(said))
        body = {"messages": [message_json(*each, key) for each in zip(texts, said, strict=True)]}
        ids = self._expect("OK", "POST", f"{self._topic(topic)}:publish", body)["messageIds"]
        return [Message(*each, key, self.model.now, id_) for *each, id_ in zip(texts, said, ids, strict=True)]

    def publish_later(self, topic: str, delays: Sequence[int], key: str = "") -> None:
        """In one request; a delay of 0 seconds is at once."""
        found = self.model.topics.get(self._topic(topic))
        if found is None:
            return
        said = [{"broker-delay": f"{seconds}s"} for seconds in delays]
        for message, seconds in zip(self._publish_each(topic, said, key), delays, strict=True):
            if seconds:
                found.scheduled.append(Scheduled(message, self.model.now + timedelta(seconds=seconds)))
            else:
                self.model.publish(found, message)

    def publish_expiring(self, topic: str, ttls: Sequence[int], key: str = "") -> None:
        """In one request; each is delivered for so many seconds."""
        found = self.model.topics.get(self._topic(topic))
        if found is None:
            return
        said = [{"broker-ttl": f"{seconds}s"} for seconds in ttls]
        for message, seconds in zip(self._publish_each(topic, said, key), ttls, strict=True):
            message.expires_at = self.model.now + timedelta(seconds=seconds)
            self.model.publish(found, message)

    def publish_named(self, topic: str, names: Sequence[tuple[str, int]], key: str = "") -> None:
        """In one request, each with its deduplication id; so many seconds later, or (0) at once."""
        found = self.model.topics.get(self._topic(topic))
        if found is None:
            return
        said = [
            {"broker-dedup-id": name} | ({"broker-delay": f"{seconds}s"} if seconds else {})
            for name, seconds in names
        ]
        for message, (name, seconds) in zip(self._publish_each(topic, said, key), names, strict=True):
            id_ = message.message_id
            if first := found.repeated(name, key, self.model.now):
                assert id_ == first, (name, id_, first)
                continue
            assert id_ not in {known for known, _ in found.named.values()}, (name, id_)
            found.named[name, key] = id_, self.model.now
            if seconds:
                found.scheduled.append(Scheduled(message, self.model.now + timedelta(seconds=seconds)))
            else:
                self.model.publish(found, message)

    def list_scheduled(self, topic: str) -> None:
        found = self.model.topics.get(self._topic(topic))
        if found is None:
            return
        listed = self._expect("OK", "GET", f"{self._topic(topic)}/scheduled").get("scheduledMessages", [])
        waiting = found.waiting()
        assert [(m["messageId"], parse_time(m["deliverTime"])) for m in listed] == [
            (each.message.message_id, each.due) for each in waiting
        ]

    def change_scheduled(self, topic: str, choice: int, seconds: int | None) -> None:
        """Let one come so many seconds from now (0 or less: at once, as soon as time passes), None: never."""
        found = self.model.topics.get(self._topic(topic))
        scheduled = found.scheduled if found else []
        if not scheduled:
            return
        chosen = scheduled[::-1][choice % len(scheduled)]
        path = f"{self._topic(topic)}/scheduled/{chosen.message.message_id}"
        due = self.model.now + timedelta(seconds=seconds or 0)
        body = {"deliverTime": format_time(due)}
        code, answer = self._call("DELETE", path) if seconds is None else self._call("PATCH", path, body)
        if chosen.came:  # once the log has it no more nobody knows
            assert code in ("FAILED_PRECONDITION", "NOT_FOUND"), answer
        elif chosen.cancelled:
            assert code == "NOT_FOUND", answer
        else:
            assert code == "OK", answer
            chosen.due = due
            chosen.cancelled = seconds is None

    # --- subscriptions -----------------------------------------------------------------------------------

    def create_subscription(self, name: str, topic: str, options: Options | None = None) -> None:
        """The options' dead-letter topic is a short name too."""
        options = options or Options()
        full = self._subscription(name)
        found = self.model.topics.get(self._topic(topic))
        dead = options.dead_letter_topic and self._topic(options.dead_letter_topic)
        if found is None or (dead and dead not in self.model.topics):
            code = "NOT_FOUND"
        else:
            code = "ALREADY_EXISTS" if full in self.model.subscriptions else "OK"
        self._expect(
            code, "PUT", full, {"topic": self._topic(topic), **_options_json(options, dead), **_journal_json(full)}
        )
        if code == "OK":
            assert found is not None
            subscription = Subscription(full, found, options, self.model.now)
            subscription.dead_letter_topic = dead
            self.model.subscriptions[full] = subscription

    def delete_subscription(self, name: str) -> None:
        exists = self._subscription(name) in self.model.subscriptions
        self._expect("OK" if exists else "NOT_FOUND", "DELETE", self._subscription(name))
        self.model.subscriptions.pop(self._subscription(name), None)

    def detach_subscription(self, name: str) -> None:
        subscription = self.model.subscriptions.get(self._subscription(name))
        self._expect("OK" if subscription else "NOT_FOUND", "POST", f"{self._subscription(name)}:detach")
        if subscription:
            subscription.detached = True
            subscription.standings.clear()

    def remove_dead_letter_policy(self, name: str) -> None:
        subscription = self.model.subscriptions.get(self._subscription(name))
        body: Json = {"subscription": {}, "updateMask": "deadLetterPolicy"}
        self._expect("OK" if subscription else "NOT_FOUND", "PATCH", self._subscription(name), body)
        if subscription and subscription.dead_letter_topic:
            # What was given up waits for the forwarder to hand it back.
            subscription.given_up = {s for s in subscription.unacked() if subscription.used_up(s)}
            subscription.dead_letter_topic = None

    def get_subscription(self, name: str) -> None:
        subscription = self.model.subscriptions.get(self._subscription(name))
        answer = self._expect("OK" if subscription else "NOT_FOUND", "GET", self._subscription(name))
        if subscription:
            deleted = subscription.topic.deleted
            assert answer["topic"] == ("_deleted-topic_" if deleted else subscription.topic.name)
            assert answer.get("detached", False) == subscription.detached

    def get_position(self, name: str) -> None:
        """The backlog is exact where no filter and no retention has a say in it."""
        subscription = self.model.subscriptions.get(self._subscription(name))
        answer = self._expect("OK" if subscription else "NOT_FOUND", "GET", f"{self._subscription(name)}/snapshot")
        if subscription is None or subscription.options.filter:
            return
        unacked = list(subscription.unacked())
        if all(s.sure and subscription.retained(s.message, self.model.now) for s in unacked):
            early = sum(s.early for s in unacked)
            gaps = sum(message.retracted for message in subscription.topic.log)  # until the cursor has passed them
            assert len(unacked) - early <= answer["undeliveredMessages"] <= len(unacked) + gaps

    # --- deliveries --------------------------------------------------------------------------------------

    def pull(self, name: str, max_messages: int = 100, *, wait: bool = False) -> list[str]:
        """Returns the ack ids.  `wait` only if there is something to deliver."""
        subscription = self.model.subscriptions.get(self._subscription(name))
        body = {"maxMessages": max_messages, "returnImmediately": not wait}
        path = f"{self._subscription(name)}:pull"
        if subscription is None or subscription.detached:
            self._expect("FAILED_PRECONDITION" if subscription else "NOT_FOUND", "POST", path, body)
            return []
        answer = self._expect("OK", "POST", path, body)
        return self._compare_pull(subscription, max_messages, answer.get("receivedMessages", []))

    def pull_while(self, name: str, event: Callable[[], None], max_messages: int = 100) -> list[str]:
        """A pull waits, with nothing to deliver, when the event brings something."""
        subscription = self.model.subscriptions[self._subscription(name)]
        assert self.model.deliverable(subscription) == (set(), set())
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(
                self._call,
                "POST",
                f"{subscription.name}:pull",
                {"maxMessages": max_messages},
                client=self.broker.second_client,
            )
            self.get_subscription(name)  # meanwhile the pull arrives
            event()
            assert self.model.deliverable(subscription)[0]
            code, body = answer.result(60)
        assert code == "OK", body
        return self._compare_pull(subscription, max_messages, body.get("receivedMessages", []))

    def _compare_pull(self, subscription: Subscription, max_messages: int, received: Sequence[Json]) -> list[str]:
        sure, perhaps = self.model.deliverable(subscription)
        assert len(received) <= max_messages
        assert received or not sure, f"{subscription.name}: nothing came of {sure}"
        messages = [self._identify(subscription, r["message"]) for r in received]
        assert len(set(messages)) == len(messages), f"twice in a response: {messages}"
        assert set(messages) <= sure | perhaps, (
            f"{subscription.name}: {set(messages) - sure - perhaps} should not be delivered now"
        )
        too_old = any(not subscription.retained(s.message, self.model.now) for s in subscription.unacked())
        if self.broker.single_shard and not perhaps and not too_old and _takes_all(subscription.options):
            assert len(messages) == min(max_messages, len(sure)), f"{messages} of {sure}"
        for key in dict.fromkeys(m.key for m in messages if keyed(subscription, m)):
            run = [m for m in messages if m.key == key]
            counts = subscription.dead_letter_topic and not subscription.dead_letter_topic_changed
            check_run(subscription, key, run, self.model.now, alone=bool(counts))
            begin_run(subscription, key, self.model.now)
        for message, r in zip(messages, received, strict=True):
            standing = subscription.standings[message]
            assert r["ackId"] not in subscription.ack_ids
            subscription.deliver(standing, r["ackId"], self.model.now)
            shown = standing.attempts if subscription.dead_letter_topic else 0
            assert r.get("deliveryAttempt", 0) == shown, f"{message}: attempt {standing.attempts}, not {r}"
        for message in messages[-2:]:
            self._compare_journal(subscription, subscription.standings[message], "HANDED_OUT")
        return [r["ackId"] for r in received]

    def _compare_journal(self, subscription: Subscription, standing: Standing, event: str) -> None:
        """What has just happened to a message is the last that its journal tells; of every other subscription."""
        if not _journaled(subscription.name):
            return
        reported = self._expect("OK", "GET", f"{subscription.name}/messages/{standing.message.message_id}")[
            "timeline"
        ][-1]
        assert (reported["event"], reported["deliveryAttempt"]) == (event, standing.attempts), standing.message

    def compare_end(self, subscription: Subscription, standing: Standing) -> None:
        """How a message ended is told for a day, and as long as it is retained.  The clock stands still: what
        happened at the same time as a seek may have been before or behind it.
        """
        at, message = standing.ended_at, standing.message
        if not standing.acked or standing.ended is None or at is None or message.retracted or subscription.detached:
            return
        if message.message_id is None or at in subscription.sought_at - (
            {at} if standing.acked_at != at else set()
        ):
            return
        code, answer = self._call("GET", f"{subscription.name}/messages/{message.message_id}")
        if code != "OK":
            assert (code, self.model.now - at >= timedelta(days=1)) == ("NOT_FOUND", True), (
                f"{message} of {message.publish_time} was {standing.ended} at {at}, now {self.model.now}: {answer}"
            )
            return
        assert answer["state"] == standing.ended, (message, standing.ended, at, answer)
        if standing.ended == "ACKNOWLEDGED":
            assert (answer["deliveryAttempt"], parse_time(answer["endTime"])) == (standing.attempts, at)

    def _identify(self, subscription: Subscription, body: Json) -> Message:
        for message in subscription.topic.log:
            if message.message_id == body["messageId"]:
                assert _body(message) == body | {"messageId": ""}
                return message
        unseen = [m for m in subscription.topic.log if m.message_id is None]
        for message in unseen:  # a dead letter; those that look the same are as good as each other
            if _body(message) == body | {"messageId": ""}:
                message.message_id, message.doubtful = body["messageId"], False
                return message
        raise AssertionError(f"{body} was never published; unseen are {unseen}")

    # --- acks and deadlines ------------------------------------------------------------------------------

    def acknowledge(self, name: str, ack_ids: Sequence[str]) -> None:
        subscription = self.model.subscriptions[self._subscription(name)]
        verdicts = subscription.ack_verdicts(ack_ids, self.model.now)
        failed = self._settle(subscription, "acknowledge", {"ackIds": list(ack_ids)}, verdicts)
        for ack_id in dict.fromkeys(ack_ids):
            if ack_id not in failed:
                subscription.acknowledge(ack_id, self.model.now)
        for ack_id in list(verdicts)[-2:]:
            standing = subscription.ack_ids[ack_id]
            certain = verdicts[ack_id] is Verdict.TAKES_EFFECT and not keyed(subscription, standing.message)
            if certain and subscription.retained(standing.message, self.model.now):
                self._compare_journal(subscription, standing, "ACKED")

    def modify_ack_deadline(self, name: str, ack_ids: Sequence[str], seconds: int) -> None:
        subscription = self.model.subscriptions[self._subscription(name)]
        verdicts = subscription.deadline_verdicts(ack_ids, self.model.now)
        body = {"ackIds": list(ack_ids), "ackDeadlineSeconds": seconds}
        failed = self._settle(subscription, "modifyAckDeadline", body, verdicts)
        changed = [ack_id for ack_id in dict.fromkeys(ack_ids) if ack_id not in failed]
        subscription.modify_ack_deadline(changed, seconds, self.model.now, JITTER)

    def nack(self, name: str, ack_ids: Sequence[str]) -> None:
        self.modify_ack_deadline(name, ack_ids, 0)

    def _settle(
        self, subscription: Subscription, verb: str, body: Json, verdicts: dict[str, Verdict]
    ) -> dict[str, str]:
        """Which ids the broker refused, and how; the model may not have expected otherwise."""
        code, answer = self._call("POST", f"{subscription.name}:{verb}", body)
        if not subscription.options.exactly_once:
            assert (code, answer) == ("OK", {})
            return {}
        failed: dict[str, str] = {}
        if code != "OK":
            assert code == "INVALID_ARGUMENT", answer
            [info] = answer["details"]
            assert info["@type"] == "type.googleapis.com/google.rpc.ErrorInfo"
            assert (info["reason"], info["domain"]) == ("EXACTLY_ONCE_ACKID_FAILURE", "pubsub.googleapis.com")
            failed = info["metadata"]
            assert failed
        for ack_id, verdict in verdicts.items():
            outcomes: dict[Verdict, list[str | None]] = {
                Verdict.TAKES_EFFECT: [None],
                Verdict.DONE: [None],
                Verdict.STALE: ["PERMANENT_FAILURE_INVALID_ACK_ID"],
                Verdict.EARLY: ["TRANSIENT_FAILURE_UNORDERED_ACK_ID"],
                Verdict.EITHER: [None, "PERMANENT_FAILURE_INVALID_ACK_ID"],
            }
            expected = outcomes[verdict]
            got = failed.get(ack_id)
            message = subscription.ack_ids[ack_id].message
            assert got in expected, f"{verb} of {message}: {got}, but it {verdict.value}"
        assert failed.keys() <= verdicts.keys()
        return failed

    def foreign_ack_id(self, name: str, ack_ids: Sequence[str], foreign: str) -> None:
        """An id that the subscription never gave out: the whole call is refused, nothing is acked."""
        answer = self._expect(
            "INVALID_ARGUMENT", "POST", f"{self._subscription(name)}:acknowledge", {"ackIds": [*ack_ids, foreign]}
        )
        assert foreign in answer["message"]

    # --- seek and snapshots ------------------------------------------------------------------------------

    def seek_to_time(self, name: str, time: datetime) -> None:
        subscription = self.model.subscriptions.get(self._subscription(name))
        self._expect(
            _seekable(subscription), "POST", f"{self._subscription(name)}:seek", {"time": format_time(time)}
        )
        if subscription and not subscription.detached:
            subscription.seek_to_time(time, self.model.now)

    def set_filter(self, name: str, wanted: Filter | None) -> None:
        """For messages published later: a moment passes, so that the broker need not make one."""
        self.time_passes(MILLISECOND)
        subscription = self.model.subscriptions.get(self._subscription(name))
        path = f"{self._subscription(name)}:setFilter"
        answer = self._expect(_seekable(subscription), "POST", path, {"filter": wanted.text if wanted else ""})
        if subscription is None or subscription.detached:
            return
        before = subscription.options.filter
        assert answer["changed"] is (wanted is not before)
        assert answer["previousFilter"] == (before.text if before else "")
        subscription.set_filter(wanted)

    def purge(self, name: str, chosen: Filter) -> None:
        subscription = self.model.subscriptions.get(self._subscription(name))
        path = f"{self._subscription(name)}:purge"
        started = self._expect(_seekable(subscription), "POST", path, {"filter": chosen.text})
        if subscription is None or subscription.detached:
            return
        ended = self._expect("OK", "POST", f"{started['name']}:wait", {})
        assert "response" in ended, ended
        sure, perhaps = subscription.purgeable(chosen, self.model.now)
        count = int(ended["response"].get("purged", 0))
        assert len(sure) <= count <= len(sure) + len(perhaps), f"{ended}: not {sure} and perhaps {perhaps}"
        subscription.purge(chosen, self.model.now)

    def seek_to_snapshot(self, name: str, snapshot_name: str) -> None:
        subscription = self.model.subscriptions.get(self._subscription(name))
        snapshot = self.model.live_snapshots().get(self._snapshot(snapshot_name))
        code = _seekable(subscription)
        if code == "OK" and snapshot is None:
            code = "NOT_FOUND"
        if code == "OK" and subscription and snapshot:
            same = snapshot.topic is subscription.topic and not snapshot.topic.deleted
            code = "OK" if same else "FAILED_PRECONDITION"
        body = {"snapshot": self._snapshot(snapshot_name)}
        self._expect(code, "POST", f"{self._subscription(name)}:seek", body)
        if code == "OK" and subscription and snapshot:
            subscription.seek_to_snapshot(snapshot, self.model.now)

    def create_snapshot(self, name: str, subscription_name: str) -> None:
        full = self._snapshot(name)
        subscription = self.model.subscriptions.get(self._subscription(subscription_name))
        code, answer = self._call("PUT", full, {"subscription": self._subscription(subscription_name)})
        if subscription is None or subscription.detached:
            assert code == ("FAILED_PRECONDITION" if subscription else "NOT_FOUND"), answer
        elif full in self.model.live_snapshots():
            assert code == "ALREADY_EXISTS", answer
        else:
            self._compare_snapshot(subscription, full, code, answer)

    def _compare_snapshot(self, subscription: Subscription, full: str, code: str, answer: Json) -> None:
        """It lives for 7 days less the age of the oldest unacked message, or of one that came together with it."""
        now = self.model.now
        times = [s.message.publish_time for s in subscription.unacked() if s.sure]
        retained = [time for time in times if time >= now - subscription.retention]
        longest = min([now, *retained]) - now + SNAPSHOT_LIFE
        shortest = min([now, *(m.publish_time for m in subscription.topic.log)]) - now + SNAPSHOT_LIFE
        if code == "FAILED_PRECONDITION":
            assert shortest < SHORTEST_SNAPSHOT_LIFE, answer
            return
        assert code == "OK", answer
        assert longest >= SHORTEST_SNAPSHOT_LIFE, answer
        expire_time = parse_time(answer["expireTime"])
        assert shortest <= expire_time - now <= longest, (
            f"lives for {expire_time - now}, not {shortest} to {longest}"
        )
        assert answer["topic"] == ("_deleted-topic_" if subscription.topic.deleted else subscription.topic.name)
        self.model.snapshots[full] = subscription.snapshot(full, now, expire_time)

    def delete_snapshot(self, name: str) -> None:
        snapshot: Snapshot | None = self.model.live_snapshots().get(self._snapshot(name))
        self._expect("OK" if snapshot else "NOT_FOUND", "DELETE", self._snapshot(name))
        self.model.snapshots.pop(self._snapshot(name), None)

    # --- what happens by itself --------------------------------------------------------------------------

    def time_passes(self, delta: timedelta) -> None:
        self.broker.move_time(delta)
        self.model.now = self.broker.now
        for topic in self.model.topics.values():
            for each in topic.waiting():
                if each.due <= self.model.now:
                    each.came = True
                    each.message.publish_time = self.model.now
                    self.model.publish(topic, each.message)

    def forward_dead_letters(self) -> None:
        certain, perhaps = 0, 0
        forwarded = []
        for subscription in self.model.subscriptions.values():
            for standing in self.model.dead_letters(subscription):
                sure = (
                    standing.sure
                    and subscription.retained(standing.message, self.model.now)
                    and not subscription.dead_letter_topic_changed
                )
                certain, perhaps = certain + sure, perhaps + (not sure)
                forwarded.append((subscription, standing, sure))
            subscription.given_up.clear()
        count = self.broker.forward_dead_letters()
        assert certain <= count <= certain + perhaps, f"{count} forwarded, not {certain} to {certain + perhaps}"
        for subscription, standing, sure in forwarded:
            self.model.forward(subscription, standing, sure=sure)

    def tidy(self) -> None:
        """The janitor may run at any time, and nobody notices."""
        self.broker.tidy()

    # --- the end -----------------------------------------------------------------------------------------

    def drain(self) -> None:
        """All that is unacked arrives in the end, here or on a dead-letter topic, and can be acked."""
        for _ in range(3 * MAX_ATTEMPTS):
            self.time_passes(timedelta(seconds=700))
            self.forward_dead_letters()
            got = [self._drain(name.rpartition("/")[2]) for name in self.model.subscriptions]
            if not any(got):
                break
        for subscription in self.model.subscriptions.values():
            left = {s.message for s in subscription.unacked() if s.sure}
            left = {m for m in left if subscription.retained(m, self.model.now)}
            assert not left, f"{subscription.name} never got {left}"

    def _drain(self, name: str) -> bool:
        ack_ids: list[str] = []
        while got := self.pull(name, 10):
            self.acknowledge(name, got)
            ack_ids += got
        return bool(ack_ids)

    def delete_everything(self) -> None:
        for name in list(self.model.live_snapshots()):
            self._expect("OK", "DELETE", name)
        for name in [*self.model.subscriptions, *self.model.topics]:
            self._expect("OK", "DELETE", name)


def _takes_all(options: Options) -> bool:
    """Whether a pull takes all that it may: nothing that it cannot deliver takes up room in the claim."""
    return not (options.retry or options.exactly_once or options.dead_letter_topic or options.ordered)


def _seekable(subscription: Subscription | None) -> str:
    if subscription is None:
        return "NOT_FOUND"
    return "FAILED_PRECONDITION" if subscription.detached else "OK"


def message_json(text: str, attributes: dict[str, str], key: str) -> Json:
    """As it is published: its data repeats its attributes, for filters that read bodies."""
    body: Json = {"data": base64.b64encode(json.dumps({"text": text, **attributes}).encode()).decode()}
    return body | ({"attributes": attributes} if attributes else {}) | ({"orderingKey": key} if key else {})


def _body(message: Message) -> Json:
    """As the broker delivers it, but for the id."""
    time = f"{message.publish_time:%Y-%m-%dT%H:%M:%S}.{message.publish_time.microsecond // 1000:03d}Z"
    published = message.source or message
    body = message_json(published.text, dict(published.attributes), message.key)
    attributes = {"attributes": dict(message.attributes)} if message.attributes else {}
    return body | attributes | {"messageId": "", "publishTime": time}


def _journaled(name: str) -> bool:
    return sum(map(ord, name)) % 2 == 0


def _journal_json(name: str) -> Json:
    return {"extensions": {"journal": {"mode": "ALL", "retention": "2678400s"}}} if _journaled(name) else {}


def _options_json(options: Options, dead_letter_topic: str | None) -> Json:
    body: Json = {
        "ackDeadlineSeconds": options.ack_deadline,
        "messageRetentionDuration": f"{options.retention.total_seconds():.0f}s",
        "retainAckedMessages": options.retain_acked,
        "enableExactlyOnceDelivery": options.exactly_once,
        "enableMessageOrdering": options.ordered,
        "expirationPolicy": {},  # never: a run lasts for months
    }
    if options.filter:
        body["filter"] = options.filter.text
    if options.retry:
        minimum, maximum = options.retry
        body["retryPolicy"] = {"minimumBackoff": f"{minimum}s", "maximumBackoff": f"{maximum}s"}
    if dead_letter_topic:
        body["deadLetterPolicy"] = {"deadLetterTopic": dead_letter_topic, "maxDeliveryAttempts": MAX_ATTEMPTS}
    return body
