"""The HTTP site of a node: its paths, and who may request them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

import attrs

from octopi.admin.cluster_pages import (
    cluster_page,
    consumers_page,
    events_page,
    topics_page,
)
from octopi.admin.cluster_watch import ClusterWatch
from octopi.admin.http_access import Denial, Holder, HttpAccessPolicy
from octopi.admin.node_views import NodeView
from octopi.admin.page_writer import Json
from octopi.admin.subscription_pages import subscription_page, subscriptions_page
from octopi.admin.topic_search import topic_search_page
from octopi.environment import Clock
from octopi.errors import (
    OctopiError,
    RefusedError,
    UnknownSubscriptionError,
    UnknownTopicError,
)
from octopi.limits import PAGES_AT_A_TIME_MAX
from octopi.printable import without_directory
from octopi.roles.streams.exchange import OpenStream, StreamCaller
from octopi.roles.streams.forwarding import is_forwarded
from octopi.security.authenticator import AuthenticatedPeer
from octopi.security.grants import Grants, Verb
from octopi.transport.http_requests import API_PATH, HttpAnswer, HttpRequest, Send, plain
from octopi.transport.memory_budget import MemoryBudget

if TYPE_CHECKING:
    from octopi.admin.metrics import Metrics

CONSOLE: Final = "/console/"
API: Final = API_PATH

PAGES: Final = {
    "cluster", "topics", "topic-search", "consumers", "subscriptions", "subscription", "events",
}  # fmt: skip
"""The pages about the cluster, below `API`."""


class Site:
    """The `octopi.transport.http_front.HttpSite` of one node."""

    def __init__(
        self, clock: Clock, console: Callable[[HttpRequest], HttpAnswer], access: HttpAccessPolicy
    ) -> None:
        """*console* answers the requests below ``/console/``."""
        self._clock = clock
        self._access = access
        self._console = console
        self._began_at = clock.now()
        self.url = ""
        """The url at which the node listens, once it does."""
        self.node: NodeView | None = None
        """None while the node starts."""
        self.watch: ClusterWatch | None = None
        """Likewise."""
        self.open_stream: OpenStream | None = None
        """Opens a stream to another node, to which a request is forwarded."""
        self._metrics: Metrics | None = None
        self._pages_count = 0
        """The number of pages about the cluster that are being made or sent."""

    def refuse_upgrade(self, request: HttpRequest) -> HttpAnswer | None:
        denial = self._access.why_no_upgrade(request, self._members)
        return None if denial is None else plain(denial.http_status, denial.reason)

    def _members(self) -> Iterable[str]:
        return () if self.node is None else self.node.members()

    async def answer(self, request: HttpRequest) -> HttpAnswer:
        match request.path:
            case "/healthz":
                return plain(200, "ok")
            case "/readyz":
                why = self._why_not_ready()
                return _json(503 if why else 200, {"ready": not why, "why": why})
            case "/" | "/console":
                return plain(302, "the console is at /console/", ("location", CONSOLE))
        if request.path.startswith(CONSOLE):
            return self._console_file(request)
        if request.is_of_stream:
            return await self._streamed(request)
        if request.path == "/metrics" or request.path.startswith(API):
            return await self._guarded(request)
        return plain(404, "there is nothing here; see /console/, /api/v1/status, /metrics")

    def _console_file(self, request: HttpRequest) -> HttpAnswer:
        """A file of the console, for everybody; pages from elsewhere may import it if they may
        connect, too."""
        answer = self._console(request)
        if self._access.why_not_from_there(request, self._members) is None:
            answer = _readable(request, answer)
        return attrs.evolve(answer, headers=(*answer.headers, ("vary", "origin")))

    async def _streamed(self, request: HttpRequest) -> HttpAnswer:
        """Answer a request of a stream, if its token is valid and its page may come here."""
        denial = self._access.why_not_from_there(request, self._members)
        if request.method == "OPTIONS":
            answer = HttpAnswer(204, b"", "", _PREFLIGHT)
            return _shared(request, answer) if denial is None else answer
        if denial is not None:
            return _denied(denial)
        if self.node is None or self.open_stream is None:
            return _shared(request, _denied(Denial(503, "not_ready", "the node starts", 1)))
        entry = self._access.enter(request)
        if isinstance(entry, Denial):
            return _shared(request, _denied(entry))
        caller = StreamCaller(request.asker.peer, self.open_stream, entry)

        def done() -> None:
            caller.leave()

        try:
            answer = await self.node.streams.answer(request, caller)
        except BaseException:
            caller.leave()
            raise
        if entry is not None:
            answer = _counted(answer, entry, self._access)
        answer = attrs.evolve(answer, done=done)
        if is_forwarded(request):
            return answer  # the node that the page has asked says what it may see
        if "origin" in request.headers:
            answer = attrs.evolve(answer, headers=(*answer.headers, _EXPOSED))
        return _shared(request, answer)

    def _why_not_ready(self) -> str:
        if self.node is None:
            return "the node starts"
        return without_directory(self.node.why_not_ready())

    async def _guarded(self, request: HttpRequest) -> HttpAnswer:
        """Answer pages about the cluster, if the requester may see them.  A node makes and sends
        only a few of them at a time, also if many requesters don't read their answers."""
        if self._pages_count >= PAGES_AT_A_TIME_MAX:
            return _denied(
                Denial(503, "over_limit", "too many requests for pages", retry_after_s=1)
            )
        self._pages_count += 1
        try:
            answer = await self._page(request)
        except BaseException:
            self._page_done()
            raise
        return attrs.evolve(answer, done=self._page_done)

    def _page_done(self) -> None:
        self._pages_count -= 1

    async def _page(self, request: HttpRequest) -> HttpAnswer:
        denial = self._access.why_not_from_there(request, self._members)
        if denial is not None:
            # A script can't see why its WebSocket was refused, so it asks here.  The answer says
            # nothing that the page doesn't know.
            return _shared(request, _denied(denial))
        if request.method == "OPTIONS":
            return _shared(request, HttpAnswer(204, b"", "", _PREFLIGHT_OF_PAGES))
        if request.path == f"{API}status":
            return _shared(request, _json(200, self._status()))
        holder = self._access.holder_of(request)
        if isinstance(holder, Denial):
            return _shared(request, _denied(holder))
        if request.path == f"{API}grants":
            answer = _shared(request, _json(200, _granted(holder.grants)))
        elif request.path != "/metrics":
            answer = _shared(request, await self._api(request, holder.grants))
        elif holder.grants.covers(None):
            answer = await self.metrics_page()
        else:
            why = "metrics are for tokens that grant something on all topics"
            return _denied(Denial(403, "forbidden", why))
        self._access.answered(holder, len(answer.body))
        return answer

    async def metrics_page(self) -> HttpAnswer:
        """The metrics, without checking the requester."""
        if self.node is None:
            return plain(503, "the node starts")
        from octopi.admin import metrics  # slow to import, and not every node is scraped

        if self._metrics is None:
            self._metrics = metrics.Metrics(self.node)
        shown = self._metrics
        await shown.look()
        return HttpAnswer(200, shown.text(), metrics.CONTENT_TYPE)

    # --- JSON ------------------------------------------------------------------------

    async def _api(self, request: HttpRequest, grants: Grants) -> HttpAnswer:
        name = request.path.removeprefix(API)
        if name not in PAGES:
            return _error(404, "not_found", f"there is no {API}{name[:100]}")
        try:
            if self.watch is None:
                return _error(503, "not_ready", "the node starts")
            return _json_body(
                200, await self._cluster_page(self.watch, name, request.query, grants)
            )
        except (UnknownTopicError, UnknownSubscriptionError) as error:
            return _error(404, error.status.name.lower(), without_directory(str(error)))
        except OctopiError as error:
            status = error.status.name.lower() if isinstance(error, RefusedError) else "unreachable"
            return _error(503, status, without_directory(str(error)))

    async def _cluster_page(
        self, watch: ClusterWatch, name: str, query: Mapping[str, str], grants: Grants
    ) -> bytes:
        seen = await watch.snapshot()
        counting = partial(watch.message_counts.of_topics, seen.look)
        match name:
            case "cluster":
                return await cluster_page(seen, query, grants.covers)
            case "topics":
                may_consume = partial(grants.allows, Verb.CONSUME)
                return await topics_page(seen, query, grants.covers, may_consume, counting)
            case "topic-search":
                return await topic_search_page(seen, query, grants.covers, counting)
            case "consumers":
                return await consumers_page(seen, query, grants.covers)
            case "subscriptions":
                return await subscriptions_page(seen, watch.subscriptions, query, grants)
            case "subscription":
                return await subscription_page(seen, watch.subscriptions, query, grants)
        return await events_page(seen, query, grants.covers)

    def _status(self) -> Json:
        facts = {} if self.node is None else attrs.asdict(self.node.facts())
        why = self._why_not_ready()
        return {
            **facts,
            "url": self.url,
            "ready": not why,
            "why": why,
            "authentication": self._access.authenticator is not None,
            "now_ms": self._clock.wall_ms(),
            "uptime_s": round(self._clock.now() - self._began_at, 3),
            "connections": 0 if self.node is None else len(self.node.traffic.connections),
            "memory": {} if self.node is None else _memory(self.node.traffic.memory),
        }


def _granted(grants: Grants) -> Json:
    """What a token is granted, so that a page offers nothing that would be refused."""
    return {verb: list(patterns) for verb, patterns in grants.patterns.items()}


_PREFLIGHT_OF_PAGES: Final = (
    ("access-control-allow-methods", "GET, HEAD, OPTIONS"),
    ("access-control-allow-headers", "authorization"),
    ("access-control-max-age", "600"),
)
_PREFLIGHT: Final = (
    ("access-control-allow-methods", "GET, HEAD, POST, PUT, DELETE, OPTIONS"),
    (
        "access-control-allow-headers",
        "authorization, content-type, if-none-match, producer-epoch, producer-id, producer-seq, "
        "stream-closed, stream-expires-at, stream-fork-offset, stream-fork-sub-offset, "
        "stream-forked-from, stream-seq, stream-ttl",
    ),
    ("access-control-max-age", "600"),
)
_EXPOSED: Final = (
    "access-control-expose-headers",
    "etag, location, producer-epoch, producer-expected-seq, producer-received-seq, producer-seq, "
    "retry-after, stream-closed, stream-cursor, stream-expires-at, stream-next-offset, "
    "stream-sse-data-encoding, stream-ttl, stream-up-to-date",
)


def _counted(answer: HttpAnswer, entry: AuthenticatedPeer, access: HttpAccessPolicy) -> HttpAnswer:
    """*answer*, whose bytes are counted against the byte rate of *entry*."""
    holder = Holder(entry.identity.grants, entry.identity.subject)
    access.answered(holder, len(answer.body))
    stream = answer.stream
    if stream is None:
        return answer

    async def send_counted(send: Send) -> None:
        async def counting(part: bytes) -> None:
            access.answered(holder, len(part))
            await send(part)

        await stream(counting)

    return attrs.evolve(answer, stream=send_counted)


def _memory(memory: MemoryBudget) -> Json:
    return {
        "budget_bytes": memory.total_bytes,
        "waiting": memory.waiting_count,
        **{f"{one.kind}_bytes": one.held_bytes for one in memory.usage()},
    }


def _shared(request: HttpRequest, answer: HttpAnswer) -> HttpAnswer:
    """Allow the page that sent *request* to read *answer*; its origin was checked before."""
    answer = _readable(request, answer)
    return attrs.evolve(answer, headers=(*answer.headers, ("vary", "origin")))


def _readable(request: HttpRequest, answer: HttpAnswer) -> HttpAnswer:
    origin = request.headers.get("origin")
    if origin is None or not (origin.isascii() and origin.isprintable()):
        return answer  # no browser's
    allowed = ("access-control-allow-origin", origin)
    return attrs.evolve(answer, headers=(*answer.headers, allowed))


def _json(status: int, value: Json) -> HttpAnswer:
    return _json_body(status, json.dumps(value, separators=(",", ":")).encode() + b"\n")


def _json_body(status: int, body: bytes) -> HttpAnswer:
    return HttpAnswer(status, body, "application/json", (("cache-control", "no-store"),))


def _denied(denial: Denial) -> HttpAnswer:
    answer = _error(denial.http_status, denial.name, denial.reason)
    if denial.http_status == 401:
        answer = attrs.evolve(answer, headers=(*answer.headers, ("www-authenticate", "Bearer")))
    if denial.retry_after_s is not None:
        wait = ("retry-after", str(denial.retry_after_s))
        answer = attrs.evolve(answer, headers=(*answer.headers, wait))
    return answer


def _error(status: int, name: str, reason: str) -> HttpAnswer:
    return _json(status, {"error": {"status": name, "reason": reason}})
