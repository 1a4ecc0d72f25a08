"""Load for push, and for very many subscriptions: roles of benchmarks/load.py."""

import asyncio
import json
import selectors
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence

from benchmarks.calls import stamped_publish
from benchmarks.load_spec import Result, Run, Spec
from benchmarks.wire import Connection, LoadFailed, build_request

# What a broker sends besides what an HTTP client adds by itself.
_PUSH_HEADERS = {
    "Content-Type": "application/json",
    "Accept": "application/json",
    "From": "noreply@google.com",
    "User-Agent": "APIs-Google; (+https://developers.google.com/webmasters/APIs-Google.html)",
}


def prepare_paced_publish(spec: Spec) -> Run:
    """Publish `rate` single messages a second for `seconds`, each with the time at which it was due to be sent."""
    connection = Connection(spec.host, spec.port)

    def run() -> Result:
        result = Result(started=time.monotonic())
        for number in range(int(spec.rate * spec.seconds)):
            due = result.started + number / spec.rate
            if (early := due - time.monotonic()) > 0:
                time.sleep(early)
            before = time.monotonic()
            connection.call(stamped_publish(spec.topic, spec.size, due))
            result.publish_seconds.append(time.monotonic() - before)
            result.requests += 1
        result.ended = time.monotonic()
        result.messages = result.requests
        return result

    return run


def prepare_subscribe(spec: Spec) -> Run:
    """Create `count` subscriptions on `connections`, `subscription` with a dash and a number.

    With an endpoint they are push subscriptions; each has the endpoint's URL with a slash and its number.
    """
    connections = [Connection(spec.host, spec.port) for _ in range(spec.connections)]

    def requests() -> Iterator[bytes]:
        for number in range(spec.count):
            config: dict[str, object] = {"topic": spec.topic, "ackDeadlineSeconds": 600}
            if spec.endpoint:
                config["pushConfig"] = {"pushEndpoint": f"{spec.endpoint}/{number}"}
            yield build_request("PUT", f"/v1/{spec.subscription}-{number}", json.dumps(config).encode())

    return lambda: call_all(connections, requests(), lambda _: 1)


def prepare_pull_each(spec: Spec) -> Run:
    """Pull once from each of the subscriptions of `prepare_subscribe`; `messages` counts those that gave one."""
    connections = [Connection(spec.host, spec.port) for _ in range(spec.connections)]
    requests = [
        build_request("POST", f"/v1/{spec.subscription}-{number}:pull", b'{"maxMessages":10}')
        for number in range(spec.count)
    ]
    return lambda: call_all(connections, iter(requests), lambda answer: answer.count(b'"ackId"'))


def call_all(connections: Sequence[Connection], requests: Iterator[bytes], count: Callable[[bytes], int]) -> Result:
    """Send all requests, one at a time on each connection; note how long each took."""
    result = Result(started=time.monotonic())
    sent_at: dict[Connection, float] = {}
    with selectors.DefaultSelector() as selector:
        for connection, request in zip(connections, requests, strict=False):
            selector.register(connection, selectors.EVENT_READ, connection)
            sent_at[connection] = time.monotonic()
            connection.send(request)
        while selector.get_map():
            for key, _ in selector.select():
                connection = key.data
                result.messages += count(connection.receive())
                result.pull_seconds.append(time.monotonic() - sent_at[connection])
                result.requests += 1
                if (following := next(requests, None)) is None:
                    selector.unregister(connection)
                else:
                    sent_at[connection] = time.monotonic()
                    connection.send(following)
    result.ended = time.monotonic()
    return result


def prepare_aiohttp_push(spec: Spec) -> Run:
    """POST `body` to `endpoint` `count` times over `connections` by aiohttp, made to do no more than it must."""
    import aiohttp  # only here: the other roles start without it
    from yarl import URL

    body = spec.body.encode()
    urls = {url: URL(url) for url in _urls(spec)}

    async def post_all() -> Result:
        connector = aiohttp.TCPConnector(limit=spec.connections)
        async with aiohttp.ClientSession(
            connector=connector, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False
        ) as session:

            async def post(url: str) -> int:
                async with session.post(
                    urls[url], data=body, headers=_PUSH_HEADERS, allow_redirects=False
                ) as answer:
                    await answer.read()
                    return answer.status

            return await _post_each(spec, post)

    return lambda: _run(post_all())


def prepare_client_push(spec: Spec) -> Run:
    """The same by the broker's own HTTP client."""
    from broker.core.pushing.client.http_client import Answer, PushClient
    from broker.core.pushing.request.envelope import PushRequest

    body = spec.body.encode()

    async def post_all() -> Result:
        client = PushClient()

        async def post(url: str) -> int:
            answer = await client.post(PushRequest(url=url, body=body, headers=_PUSH_HEADERS))
            return answer.status if isinstance(answer, Answer) else 0

        try:
            return await _post_each(spec, post)
        finally:
            await client.close()

    return lambda: _run(post_all())


def _urls(spec: Spec) -> list[str]:
    return [f"{spec.endpoint}/{number}" if spec.numbered else spec.endpoint for number in range(spec.count)]


async def _post_each(spec: Spec, post: Callable[[str], Awaitable[int]]) -> Result:
    left = iter(_urls(spec))

    async def post_some() -> None:
        for url in left:
            if (status := await post(url)) != 204:
                raise LoadFailed(f"the sink answered {status}")

    result = Result(started=time.monotonic())
    await asyncio.gather(*(post_some() for _ in range(spec.connections)))
    result.ended = time.monotonic()
    result.messages = result.requests = spec.count
    return result


def _run(work: Coroutine[None, None, Result]) -> Result:
    import uvloop

    return uvloop.run(work)


PUSH_ROLES: dict[str, Callable[[Spec], Run]] = {
    "paced_publish": prepare_paced_publish,
    "subscribe": prepare_subscribe,
    "pull_each": prepare_pull_each,
    "aiohttp_push": prepare_aiohttp_push,
    "client_push": prepare_client_push,
}
