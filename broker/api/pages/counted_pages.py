"""Pages outside of the API (metrics, the specification) use the same budget of answers as calls of the API, and
wait for turns of the event loop."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from broker.api.limits.address_turns import AddressTurns
from broker.api.limits.answer_memory import LARGE_ANSWER_BYTES, AnswerMemory
from broker.api.rest.errors import encode_error
from broker.fairness.slow_readers import slow_readers


class CountedPages:
    """An application of ASGI.  Its large answers count under their path, until they are taken."""

    def __init__(self, app: ASGIApp, answers: AnswerMemory, turns: AddressTurns) -> None:
        """`app`, whose `send` returns once what it was given is taken (net/http1/asgi.py)."""
        self._app = app
        self._answers = answers
        self._turns = turns

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        else:
            await self._turns.to_answer(scope["client"])
            await self._app(scope, receive, _Counted(self._answers, scope["path"], send))


class _Counted:
    """Sends one answer, or a refusal in its place."""

    def __init__(self, answers: AnswerMemory, path: str, send: Send) -> None:
        self._answers, self._path, self._send = answers, path, send
        self._start: Message | None = None  # sent with the first part of the body
        self._refused = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
            return
        size = len(message.get("body", b""))
        if size < LARGE_ANSWER_BYTES:
            await self._pass_on(message)
        elif self._start is not None and not self._answers.has_capacity(self._path):
            self._refused = True
            await _refuse(self._send)
        else:
            with self._answers.holding(self._path, size):
                await self._pass_on(message)

    async def _pass_on(self, message: Message) -> None:
        start, self._start = self._start, None
        if self._refused:
            return
        if start is not None:
            await self._send(start)
        await self._send(message)


async def _refuse(send: Send) -> None:
    answer = encode_error(slow_readers())
    headers = [(b"content-type", b"application/json; charset=UTF-8")]
    if answer.retry_after is not None:
        headers.append((b"retry-after", b"%d" % answer.retry_after))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})
