"""A broker as an ASGI application: its lifespan, its APIs, and the pages beside the API."""

import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import ASGIApp

from broker.api.grpc.server import GrpcApi
from broker.api.limits.hot_calls import HotCalls
from broker.api.limits.resource_calls import ResourceCalls
from broker.api.pages.counted_pages import CountedPages
from broker.api.pages.health import health_routes
from broker.api.pages.on_first_use import OnFirstUse
from broker.api.pages.openapi import openapi_routes
from broker.api.pages.token import token_routes
from broker.api.rest.app import RestApi
from broker.api.row import methods_of, routes_of
from broker.app.broker import Broker
from broker.app.config import AppConfig
from broker.console.prefix import PREFIX
from broker.core.context.readiness import WhileAway
from broker.core.context.storage_alarm import StorageAlarm
from broker.fairness.resource_turns import ResourceTurns
from broker.fairness.turn_counts import TurnCounts
from broker.net.first_bytes import HTTP1_API, HTTP2_API, METRICS, STATES, STOP_WAITING, WEB_PAGES
from broker.observability.metrics.counters import Counters
from broker.version import version

StartFailed = Callable[[Exception], None]


def create_app(
    config: AppConfig,
    *,
    counters: Counters | None = None,
    storage: StorageAlarm | None = None,
    while_away: WhileAway = contextlib.nullcontext,
    start_failed: StartFailed | None = None,
) -> ASGIApp:
    """Creates the broker for a server of ASGI with the protocol of net/first_bytes.py.

    Its lifespan opens and closes everything, and gives the APIs; the application itself serves what surrounds the
    API: health, the specification, the keys of tokens.

    `storage` is updated from outside with the free space of the disk.  `start_failed` is called with the error if
    it could not begin; servers of ASGI only get the text of a traceback.
    """
    broker = Broker(config, counters=counters, storage=storage)
    return serve_broker(broker, while_away=while_away, start_failed=start_failed)


def serve_broker(
    broker: Broker, *, while_away: WhileAway = contextlib.nullcontext, start_failed: StartFailed | None = None
) -> ASGIApp:
    """Creates the app as create_app does, for a broker that the caller has built and keeps a reference to."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[dict[str, Any]]:
        begun = False
        try:
            async with broker.running(while_away):
                begun = True
                yield {STOP_WAITING: broker.stop_waiting, METRICS: _metrics_app(broker), **for_port(broker)}
        except Exception as error:
            if start_failed is not None and not begun:
                start_failed(error)
            raise

    routes = [
        *health_routes(broker.check_ready, broker.core.storage.warnings),
        *openapi_routes(routes_of(broker.rpcs)),
        *(page for feature in broker.features.values() for page in feature.pages),
        *broker.well_known_routes(),
        *_console_routes(broker),
        *(token_routes(broker.guard.access.exchange, broker.requests) if broker.guard.access is not None else ()),
    ]
    return CountedPages(Starlette(routes=routes, lifespan=lifespan), broker.answers, broker.address_turns)


def _console_routes(broker: Broker) -> list[Route]:
    if not broker.parts.config.has_console:
        return []
    console = OnFirstUse(partial(_make_console, broker))
    return [Route(PREFIX.rstrip("/"), console), Route(PREFIX + "{rest:path}", console)]


def _make_console(broker: Broker) -> ASGIApp:
    from broker.console.app import Console  # takes long to load, and most processes never show a page
    from broker.console.oidc_sign_in import OidcSignIn
    from broker.console.shared import SharedPages
    from broker.console.sign_in import SignIn

    config, access, now = broker.parts.config, broker.guard.access, broker.core.clock.now
    secure = config.address.startswith("https:")
    if access is None:
        return Console(version=version(), now=now, read_only=config.console_read_only, secure=secure)
    sign_in = SignIn(
        access.sessions, authenticate=access.authenticator.caller, exchange=access.exchange, secure=secure
    )
    return Console(
        version=version(),
        now=now,
        sign_in=sign_in,
        oidc=OidcSignIn(access.code_flow, sign_in, now=now, secure=secure),
        shared=SharedPages(access.link_holders, now=now, secure=secure),
        read_only=config.console_read_only,
        secure=secure,
    )


def _metrics_app(broker: Broker) -> ASGIApp:
    return Starlette(routes=[page for feature in broker.features.values() for page in feature.metrics_pages])


def for_port(broker: Broker) -> dict[str, Any]:
    """The lifespan state that net/first_bytes.py reads."""
    core, has_capacity = broker.core, broker.answers.has_capacity
    turns = ResourceTurns(
        counts=TurnCounts(core.counters, "resource"), tenants=core.tenants, has_capacity=has_capacity
    )
    limits: dict[str, Any] = {
        "requests": broker.requests,
        "answers": broker.answers,
        "resource_calls": ResourceCalls(turns.of),
        "hot_calls": HotCalls(core.tenants.is_contended),
        "calls": broker.calls,
        "address_turns": broker.address_turns,
        "gate": broker.gate,
        "auditor": broker.auditor,
    }
    return {
        HTTP1_API: RestApi(routes_of(broker.rpcs), turns=core.loop_turns, **limits),
        HTTP2_API: GrpcApi(methods_of(broker.rpcs), turns=core.loop_turns, **limits),
        WEB_PAGES: broker.web_pages,
        STATES: core.states,
    }
