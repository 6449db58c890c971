"""Consumers that wait, create or match topics do only what their tokens grant."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

import octopi
from octopi.errors import RefusedError, Status
from octopi.security.grants import Verb
from tests.security.test_authorisation import everything, fresh, guarded, ready


async def test_a_consumer_creates_a_topic_only_with_the_verb_create(tmp_path: Path) -> None:
    async with guarded(tmp_path) as cluster:
        reader = fresh(subscribe="orders")
        async with octopi.connect(cluster.register.url, token=reader) as client:
            with pytest.raises(RefusedError) as caught:
                async with client.consumer("orders", create=True):
                    pass
        assert caught.value.status is Status.FORBIDDEN
        creator = fresh(verbs=(Verb.SUBSCRIBE, Verb.CREATE), pattern="orders")
        async with (
            octopi.connect(cluster.register.url, token=creator) as client,
            client.consumer("orders", create=True) as consumer,
        ):
            assert consumer.lag_bytes == 0


async def test_a_pattern_matches_what_the_token_may_know_of_and_leaves_what_it_may_not_read(
    tmp_path: Path,
) -> None:
    async with guarded(tmp_path) as cluster:
        for topic in ("eu.read", "eu.write", "eu.hidden"):
            await ready(cluster, topic)
        async with (
            octopi.connect(cluster.register.url, token=everything()) as writer,
            writer.producer() as producer,
        ):
            await producer.send("eu.read", b"value")
        limited = fresh(subscribe="eu.read", publish="eu.write")
        async with octopi.connect(cluster.register.url, token=limited) as client:
            with trio.fail_after(20):
                async with client.consumer(["*"], start="earliest") as consumer:
                    assert consumer.topics == ["eu.read"]
                    assert (await anext(consumer)).value == b"value"
                    [left] = consumer.left
                    assert left.topic == "eu.write"
                    assert isinstance(left.why, RefusedError)
                    assert left.why.status is Status.FORBIDDEN
            with pytest.raises(RefusedError) as caught:
                async with client.consumer(["eu.write", "eu.read"]):
                    pass
            assert caught.value.status is Status.FORBIDDEN
