"""Answers requests for streams at the node that decides about their topics: it creates and deletes
them, and has the leaders of their partitions answer the others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import attrs

from octopi.errors import (
    NotReadyError,
    OctopiError,
    RefusedError,
    Status,
    TopicExistsError,
    UnknownTopicError,
)
from octopi.identifiers import Offset, PartitionId, TopicId, TopicName
from octopi.limits import HTTP_BODY_BYTES_MAX
from octopi.model import StreamDefinition, TopicRecord
from octopi.roles.streams import exchange
from octopi.roles.streams.exchange import ANYWHERE, FORK, INITIAL, NO_STORE, StreamCaller
from octopi.roles.streams.fixed_lists import check_fixed_list
from octopi.roles.streams.forwarding import asked_host
from octopi.security.grants import Verb
from octopi.security.quotas import Creator
from octopi.streams import content_types, paths
from octopi.streams.definitions import (
    content_type_of,
    definition_of,
    expiry_headers,
    is_closing,
    is_same,
)
from octopi.streams.forks import ForkOrder, fork_definition, order_of
from octopi.streams.offsets import offset_text
from octopi.streams.problems import StreamProblem, conflict, deleted, invalid, unknown
from octopi.transport.http_requests import HttpAnswer, HttpRequest
from octopi.transport.memory_budget import MemoryBudget

_OF_WRITES: Final = ("authorization", "stream-closed")
"""Headers of a PUT that its writes have, too."""
_CREATIONS_MAX: Final = 10
"""How often a PUT finds an expired stream in its place, before it is refused."""


class StreamTopics(Protocol):
    """The topics that the node decides about, and the way to their leaders."""

    def known(self, topic: TopicName) -> TopicRecord | None:
        """The topic of that name, as it is decided now."""

    def has_forks(self, topic: TopicName) -> bool:
        """Whether there is a fork of the topic of that name, or of one that was deleted."""

    async def find(self, topic: TopicName, *, creator: Creator | None) -> TopicRecord:
        """See `octopi.roles.topic_service.KeptTopics.find`."""

    async def create(
        self, topic: TopicName, *, beside: str, creator: Creator, stream: StreamDefinition
    ) -> TopicRecord:
        """See `octopi.roles.topic_service.KeptTopics.create`."""

    async def delete(self, topic: TopicName) -> None:
        """See `octopi.roles.topic_service.KeptTopics.delete`."""

    async def served(
        self,
        request: HttpRequest,
        caller: StreamCaller,
        body: bytes,
        place: Callable[[], Awaitable[PartitionId]],
    ) -> HttpAnswer:
        """What the leader of the partition that *place* returns answers to *request*.

        Raises:
          OctopiError: if nobody leads it, or that of *place*.
        """


class StreamDecisions:
    """See `octopi.roles.streams.exchange.StreamService`."""

    def __init__(self, topics: StreamTopics, memory: MemoryBudget) -> None:
        """*memory*: for the content of requests."""
        self._topics = topics
        self._memory = memory

    async def answer(self, request: HttpRequest, caller: StreamCaller) -> HttpAnswer:
        """The answer; errors are answers, too."""
        try:
            return await self._answer(request, caller)
        except OctopiError as error:
            return exchange.problem_answer(error)

    async def _answer(self, request: HttpRequest, caller: StreamCaller) -> HttpAnswer:
        topic = paths.topic_of(request.path)
        caller.require_method(request.method, topic)
        known = self._topics.known(topic)
        if known is not None and known.is_relay and request.method != "DELETE":
            raise RefusedError(f"topic {topic} is in memory, and no stream", Status.WRONG_KIND)
        asked = exchange.parameters(request)
        memory = caller.accounts(self._memory)
        body = await exchange.received(request, memory, HTTP_BODY_BYTES_MAX)
        match request.method:
            case "PUT":
                return await self._put(request, caller, topic, body)
            case "DELETE":
                await self._delete(topic)
                return HttpAnswer(204, b"", "", (NO_STORE, ANYWHERE))
            case "POST":
                await self._create_lazily(request, caller, topic)
        return await self._forward(request, caller, topic, body, asked.get("partition", ""))

    async def _delete(self, topic: TopicName) -> None:
        try:
            await self._topics.delete(topic)
        except UnknownTopicError:
            raise self._missing(topic) from None

    def _missing(self, topic: TopicName) -> StreamProblem:
        """The refusal of a request for a stream that isn't there."""
        return deleted(topic) if self._topics.has_forks(topic) else unknown(topic)

    async def _create_lazily(
        self, request: HttpRequest, caller: StreamCaller, topic: TopicName
    ) -> None:
        """Create the stream that ``curl -d`` writes to, if there is none."""
        given = content_types.essence(request.headers.get("content-type", ""))
        if given != content_types.FORM or self._topics.known(topic) is not None:
            return
        caller.require(Verb.CREATE, topic)
        await self._topics.find(topic, creator=caller.creator)

    async def _forward(
        self,
        request: HttpRequest,
        caller: StreamCaller,
        topic: TopicName,
        body: bytes,
        partition: str = "",
    ) -> HttpAnswer:
        """Have the leader answer.

        Raises:
          OctopiError: if there is no such stream, or nobody leads it.
        """

        async def place() -> PartitionId:
            try:
                record = await self._topics.find(topic, creator=None)
            except UnknownTopicError:
                raise self._missing(topic) from None
            return _chosen(record, partition)

        return await self._topics.served(request, caller, body, place)

    # --- creating ----------------------------------------------------------------------------

    async def _put(
        self, request: HttpRequest, caller: StreamCaller, topic: TopicName, body: bytes
    ) -> HttpAnswer:
        wanted, order = definition_of(request.headers), order_of(request.headers)
        if body or order is not None or is_closing(request.headers):
            caller.require(Verb.PUBLISH, topic)
        if order is not None:
            wanted = await self._fork_of(request, caller, order, wanted)
        record, found = await self._ensure_living(request, caller, topic, wanted)
        begin = offset_text(TopicId(record.topic_id), Offset(0))
        if found is not None:
            answer = found
            if ("stream-next-offset", begin) in found.headers and is_same(record.stream, wanted):
                # Whoever created it may have failed before the content was written.
                if order is not None:
                    filled = await self._fill_fork(request, caller, topic, wanted, body)
                    answer = answer if 400 <= filled.status < 500 else filled
                elif body:
                    answer = await self._write_initial(request, caller, topic, wanted, body)
            if not is_same(record.stream, wanted):
                raise conflict(
                    f"the stream exists already, as {content_type_of(record.stream)}, and the "
                    "request describes another one"
                )
            told = {name for name, _ in answer.headers}
            if answer.status == 200 and ("stream-closed" in told) != is_closing(request.headers):
                raise conflict("the stream exists already, and only one of both is closed")
        elif order is not None:
            answer = await self._fill_fork(request, caller, topic, wanted, body)
            if 400 <= answer.status < 500:
                await self._delete_if_same(record)
        elif body or is_closing(request.headers):
            answer = await self._write_initial(request, caller, topic, wanted, body)
        else:
            headers = (NO_STORE, ANYWHERE, ("stream-next-offset", begin), *expiry_headers(wanted))
            answer = HttpAnswer(201, b"", "", headers)
        if answer.status >= 300:
            return answer
        told_headers = [pair for pair in answer.headers if pair[0] != "content-length"]
        if found is None:
            scheme = "https" if request.asker.is_secure else "http"
            path = request.path + (f"?{request.raw_query}" if request.raw_query else "")
            told_headers.append(("location", f"{scheme}://{asked_host(request)}{path}"))
        status = 201 if found is None else 200
        return HttpAnswer(status, b"", content_type_of(record.stream), tuple(told_headers))

    async def _ensure_living(
        self,
        request: HttpRequest,
        caller: StreamCaller,
        topic: TopicName,
        wanted: StreamDefinition,
    ) -> tuple[TopicRecord, HttpAnswer | None]:
        """The topic, and what its leader says of the stream; None: the topic was created now.

        Raises:
          OctopiError: see `_ensure`, `_head`.
        """
        for _ in range(_CREATIONS_MAX):
            record, is_new = await self._ensure(caller, topic, wanted)
            if is_new:
                return record, None
            found = await self._head(request, caller, topic)
            if found is not None:
                return record, found
            await self._delete_if_same(record)  # it has expired: begin anew
        raise NotReadyError("the stream is created and deleted by others all the time")

    async def _ensure(
        self, caller: StreamCaller, topic: TopicName, wanted: StreamDefinition
    ) -> tuple[TopicRecord, bool]:
        """The topic, and whether it was created now."""
        if self._topics.known(topic) is None:
            if self._topics.has_forks(topic):
                raise conflict("a stream of that name was deleted, and there are forks of it")
            beside = wanted.ancestors[0] if wanted.ancestors else ""
            try:
                made = await self._topics.create(
                    topic, beside=beside, creator=caller.creator, stream=wanted
                )
            except TopicExistsError:
                pass  # another request was faster
            else:
                return made, True
        return await self._topics.find(topic, creator=None), False

    async def _fork_of(
        self,
        request: HttpRequest,
        caller: StreamCaller,
        order: ForkOrder,
        wanted: StreamDefinition,
    ) -> StreamDefinition:
        """The definition of the fork that *request* describes.

        Raises:
          OctopiError: if its source can't be forked so.
        """
        caller.require(Verb.SUBSCRIBE, order.source)
        source = self._topics.known(order.source)
        if source is None:
            if self._topics.has_forks(order.source):
                raise conflict(f"stream {order.source} was deleted")
            raise unknown(order.source)
        if len(source.partitions) > 1:
            raise invalid(f"topic {order.source} has several partitions: it can't be forked")
        named = request.headers.get("content-type", "")
        return fork_definition(order, wanted, source.stream, names_type=bool(named))

    async def _fill_fork(
        self,
        request: HttpRequest,
        caller: StreamCaller,
        topic: TopicName,
        wanted: StreamDefinition,
        body: bytes,
    ) -> HttpAnswer:
        """Have the leader write what the fork inherits and its initial content, as one batch, then
        close it if it shall be.

        Raises:
          OctopiError: if that is not known to be done; a repetition of the request does it then.
        """
        headers = {
            name: request.headers[name] for name in _OF_WRITES[:1] if name in request.headers
        }
        headers |= {"content-type": wanted.content_type, "octopi-asked-host": asked_host(request)}
        copying = attrs.evolve(
            request, method="POST", headers={**headers, FORK: wanted.forked_from}
        )
        answer = await self._forward(copying, caller, topic, body)
        if answer.status < 300 and is_closing(request.headers):
            closing = attrs.evolve(
                request, method="POST", headers={**headers, "stream-closed": "true"}
            )
            answer = await self._forward(closing, caller, topic, b"")
        return answer

    async def _delete_if_same(self, record: TopicRecord) -> None:
        known = self._topics.known(TopicName(record.topic))
        if known is not None and known.topic_id == record.topic_id:
            await self._delete(TopicName(record.topic))

    async def _head(
        self, request: HttpRequest, caller: StreamCaller, topic: TopicName
    ) -> HttpAnswer | None:
        """What the leader says of the stream; None: it has expired, or was deleted meanwhile.

        Raises:
          OctopiError: if the leader can't say it now.
        """
        headers = {name: request.headers[name] for name in _OF_WRITES if name in request.headers}
        asked = attrs.evolve(
            request, method="HEAD", headers={**headers, "octopi-asked-host": asked_host(request)}
        )
        try:
            answer = await self._forward(asked, caller, topic, b"")
        except StreamProblem as problem:
            if problem.status != Status.UNKNOWN_TOPIC:
                raise
            return None
        if answer.status in {404, 410}:
            return None
        if answer.status >= 300:  # the reason would be in a body, which such an answer has not
            raise NotReadyError("the leader of the stream can't say what it has")
        return answer

    async def _write_initial(
        self,
        request: HttpRequest,
        caller: StreamCaller,
        topic: TopicName,
        wanted: StreamDefinition,
        body: bytes,
    ) -> HttpAnswer:
        headers = {name: request.headers[name] for name in _OF_WRITES if name in request.headers}
        headers |= {
            "content-type": wanted.content_type,
            INITIAL: "true",
            "octopi-asked-host": asked_host(request),
        }
        write = attrs.evolve(request, method="POST", headers=headers)
        return await self._forward(write, caller, topic, body)


def _chosen(record: TopicRecord, partition: str) -> PartitionId:
    """The partition that a request is about.

    Raises:
      StreamProblem: if it names none of the topic, or the topic has several and it names none.
      RefusedError: see `check_fixed_list`.
    """
    check_fixed_list(record)
    numbers = ", ".join(str(one) for one in record.partitions[:20])
    if not partition:
        if len(record.partitions) > 1:
            raise invalid(
                f"the topic has the partitions {numbers}: choose one with ?partition=NUMBER"
            )
        return record.partitions[0]
    if not (partition.isascii() and partition.isdigit() and len(partition) <= 9):
        raise invalid(f"partition is a number, not {partition[:20]!r}")
    chosen = PartitionId(int(partition))
    if chosen not in record.partitions:
        raise StreamProblem(
            f"the topic has the partitions {numbers}, not {chosen}", Status.UNKNOWN_PARTITION
        )
    return chosen
