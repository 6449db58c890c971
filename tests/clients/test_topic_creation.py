"""Topics that come and go while a client creates them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

import pytest

from octopi.clients.routing import RequestRouter
from octopi.clients.topic_creation import create_topic
from octopi.errors import NotReadyError, OctopiError, TopicExistsError, UnknownTopicError
from octopi.identifiers import TopicName
from octopi.wire.messages import TopicDescription, TopicInfo, TopicOptions

T = TypeVar("T")
ORDERS = TopicName("orders")
MADE = TopicInfo("orders", "5f0c2a1b5f0c2a1b", [], TopicOptions())


class Register:
    """Answers what it is told to, one answer a request; stands for the client's router, too."""

    def __init__(self, *answers: TopicInfo | OctopiError) -> None:
        self.answers = list(answers)

    def _next(self) -> TopicInfo:
        answer = self.answers.pop(0)
        if isinstance(answer, OctopiError):
            raise answer
        return answer

    async def ask_register_once(self, *_: Any) -> TopicDescription:  # noqa: ANN401
        return TopicDescription(1, self._next())

    async def describe_once(self, *_: Any) -> TopicInfo:  # noqa: ANN401
        return self._next()

    async def retry(self, _: str, attempt: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await attempt()
            except NotReadyError:
                continue


async def create(register: Register, *, exist_ok: bool) -> TopicInfo:
    router = cast(RequestRouter, register)
    return await create_topic(router, ORDERS, 1, None, TopicOptions(), exist_ok=exist_ok)


async def test_a_topic_that_is_deleted_while_it_is_looked_at_is_created() -> None:
    register = Register(TopicExistsError("it exists"), UnknownTopicError("it doesn't"), MADE)
    assert await create(register, exist_ok=True) == MADE
    assert not register.answers


async def test_a_topic_that_exists_is_not_looked_at_without_need() -> None:
    register = Register(TopicExistsError("it exists"), UnknownTopicError("it doesn't"))
    with pytest.raises(TopicExistsError):
        await create(register, exist_ok=False)
    assert len(register.answers) == 1
