"""Whatever a server or a file says, a terminal gets printable characters, and a pipe the data as they are."""

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.client.terminal import printable, printable_json
from tests.cli.client.answering import AnsweringServer
from tests.cli.client.terminal import Terminal

_CONTROLS = (*range(0x20), *range(0x7F, 0xA0))
_BIDIRECTIONAL = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_SEPARATORS = (0x2028, 0x2029, 0x00AD, 0xFEFF, 0xE0001, 0x1D173, 0xD800)
H = f"a{''.join(map(chr, (*_CONTROLS, *_BIDIRECTIONAL, *_SEPARATORS)))}]0;title\x07\x1b[31mb"
TIME = "2026-11-23T10:00:00.000Z"
MESSAGE = {
    "messageId": f"7{H}",
    "publishTime": TIME,
    "orderingKey": H,
    "attributes": {H: H},
    "data": base64.b64encode(H.encode(errors="replace")).decode(),
}
SUBSCRIPTION = f"projects/p/subscriptions/{H}"
LETTER = {"sourceMessageId": "1", "reason": H, "message": MESSAGE | {"messageId": "2"}}
LAG = {"subscription": SUBSCRIPTION, "deliveryState": H, "verdict": H, "undeliveredMessages": 1}
ANSWERS: dict[str, Any] = {
    "message show 1": {
        "topic": f"projects/p/topics/{H}",
        "message": MESSAGE,
        "subscriptions": [{"subscription": SUBSCRIPTION, "state": H, "deliveryState": H, "verdict": H}],
    },
    "message show 1 --sub s": {"timeline": [{"time": TIME, "event": H, "principal": H, "client": H, "answer": H}]},
    "dlq show s 1": {"deadLetters": [LETTER]},
    "dlq list s": {"deadLetters": [LETTER]},
    "scheduled show t 1": MESSAGE | {"deliverTime": TIME},
    "scheduled list t": {"scheduledMessages": [MESSAGE | {"deliverTime": TIME}]},
    "topic list": {"topics": [{"name": f"projects/p/topics/{H}", "labels": {H: H}}]},
    "topic show t": {"name": f"projects/p/topics/{H}", "labels": {H: H}, "subscriptions": [H]},
    "topic create t": {"name": H},
    "topic browse t": {"messages": [MESSAGE]},
    "peek s": {"messages": [{"state": H, "message": MESSAGE}]},
    "pull s": {"receivedMessages": [{"ackId": H, "message": MESSAGE}]},
    "publish t text": {"messageIds": [H]},
    "lag": {"subscriptions": [LAG]},
    "top --max 1": {"subscriptions": [LAG]},
    "history x": {
        "timeSeries": [
            {
                "metric": {"type": "x", "labels": {H: H}},
                "metricKind": "DELTA",
                "points": [
                    {
                        "interval": {"startTime": TIME, "endTime": "2026-11-23T10:01:00Z"},
                        "value": {"int64Value": "1"},
                    }
                ],
            }
        ],
        "unit": H,
        "alignmentPeriod": "60s",
        "interval": {"startTime": TIME, "endTime": "2026-11-23T11:00:00Z"},
    },
    "schema show s": {"name": H, "type": H, "definition": H, "revisionId": H},
    "op show 1": {
        "name": "projects/p/operations/1",
        "done": True,
        "error": {"code": 3, "message": H},
        "metadata": {"verb": H, "target": H, "state": H, "counts": {H: "1"}},
    },
}
_STYLED = re.compile(r"\x1b\[[0-9;]*[mHJ]")


def unprintable(text: str) -> set[str]:
    """What a terminal was sent besides text in colours."""
    return {one for one in _STYLED.sub("", text) if not one.isprintable() and one != "\n"}


@pytest.mark.parametrize("command", ANSWERS)
def test_a_terminal_gets_no_control_characters(command: str, terminal: Terminal, server: AnsweringServer) -> None:
    server.answer = (200, json.dumps(ANSWERS[command]).encode())
    line = f"broker {command} --url {server.url} --project p"
    for columns in (80, 1000):
        terminal.columns = columns
        for each in (line, f"{line} --json"):
            typed = terminal.type(each, colours=True)
            assert typed.code in (0, 1), typed.text
            assert unprintable(typed.text) == set()
    if command not in ("lag",):
        assert "\\u202e" in typed.text


def test_json_has_the_same_value_on_a_terminal_and_is_written_to_a_pipe_as_it_is(
    terminal: Terminal, server: AnsweringServer
) -> None:
    answer = ANSWERS["message show 1"]
    server.answer = (200, json.dumps(answer).encode())
    line = f"broker message show 1 --url {server.url} --project p --json"
    assert json.loads(terminal.type(line).text) == answer
    assert terminal.pipe(line).text == json.dumps(answer, indent=2, ensure_ascii=False) + "\n"


def test_an_error_is_one_printable_line(terminal: Terminal, server: AnsweringServer) -> None:
    error = {"code": 400, "status": "INVALID_ARGUMENT", "message": H}
    server.answer = (400, json.dumps({"error": error}).encode())
    for line in ("broker topic show t", "broker topic show t --json", "broker apply --file shop.yaml"):
        typed = terminal.type(f"{line} --url {server.url} --project p")
        assert typed.code != 0
        assert unprintable(typed.text) == set()
        assert len(typed.text.splitlines()) == 1


def test_events_and_exports_are_escaped_on_a_terminal(terminal: Terminal, server: AnsweringServer) -> None:
    event = f"event: message\ndata: {json.dumps(MESSAGE)}\n\n"
    server.answer = (200, event.encode())
    for line in ("broker tail t --max 1", "broker tail t --max 1 --json"):
        typed = terminal.type(f"{line} --url {server.url} --project p", colours=True)
        assert typed.code == 0, typed.text
        assert unprintable(typed.text) == set()
    raw = f"{json.dumps({'orderingKey': H.replace(chr(0xD800), '')}, ensure_ascii=False)}\n"
    server.answer = (200, raw.encode())
    line = f"broker topic export t --url {server.url} --project p"
    shown = terminal.type(line, colours=True)
    assert unprintable(shown.text) == set()
    assert json.loads(shown.text) == json.loads(raw)
    refused = terminal.type(f"{line} --format avro")
    assert refused.code == 2
    assert "redirect it" in refused.text


def test_a_plan_and_what_is_wrong_with_a_file_are_escaped(
    terminal: Terminal, server: AnsweringServer, tmp_path: Path
) -> None:
    quoted = json.dumps(H.replace(chr(0xD800), ""))
    declarations = {
        "plan": f'{{"topics": {{{quoted}: {{"labels": {{{quoted}: {quoted}}}}}}}}}',
        "field": f'{{"topics": {{"t": {{{quoted}: 1}}}}}}',
        "name": f"{{{quoted}: {{}}}}",
    }
    for name, text in declarations.items():
        (tmp_path / f"{name}.json").write_text(text, encoding="utf-8")
        for more in ("", " --json"):
            line = f"broker apply --file {tmp_path}/{name}.json --dry-run --url {server.url} --project p{more}"
            typed = terminal.type(line, colours=True)
            assert unprintable(typed.text) == set()
            assert "\\u202e" in typed.text


@given(st.text())
def test_a_printable_text_is_one_line_and_printable_json_has_the_same_value(text: str) -> None:
    assert printable(text).isprintable()
    for encoded in (json.dumps(text, ensure_ascii=False), json.dumps([text], ensure_ascii=False, indent=2)):
        shown = printable_json(encoded)
        assert all(one.isprintable() or one == "\n" for one in shown)
        assert json.loads(shown) == json.loads(encoded)
