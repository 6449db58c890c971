"""What nodes tell of durable subscriptions over HTTP, asked of a real cluster in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

import octopi
from octopi.admin import subscription_watch
from octopi.cli.config import NodeSettings
from tests.admin.nodes import ask, serving_nodes
from tests.admin.test_pages import until, written
from tests.admin.test_protected_nodes import token, with_tokens

LIST, ONE = "/api/v1/subscriptions", "/api/v1/subscription"


async def until_equal(url: str, path: str, key: str, value: object) -> Any:  # noqa: ANN401
    """The page, as soon as *key* has *value*: pages are a moment old."""
    with trio.fail_after(20):
        while (page := (await ask(url, path)).json).get(key) != value:  # noqa: ASYNC110
            await trio.sleep(0.1)  # nothing announces it
    return page


async def test_subscriptions_are_shown_with_members_and_lag(tmp_path: Path) -> None:
    async with serving_nodes(tmp_path) as nodes:
        receipt = await written(nodes, count=3)
        async with octopi.connect(nodes.register) as client:
            await client.create_topic("payments", 3)
            await client.admin.create_subscription("payments", "ledger", mode="failover")
            await client.admin.create_subscription("orders", "billing")
            ledger, *_ = await until(nodes.brokers[0], f"{LIST}?prefix=p", "subscriptions", 1)
            assert (ledger["topic"], ledger["subscription"]) == ("payments", "ledger")
            assert (ledger["mode"], ledger["state"]) == ("failover", "ready")
            assert (ledger["members_count"], ledger["logs_without_member"]) == (0, 3)
            assert (ledger["logs_count"], ledger["logs_known"]) == (3, 3)
            assert (ledger["lag_bytes"], ledger["lag_ms"], ledger["lost_bytes"]) == (0, 0, 0)
            names = [
                (one["topic"], one["subscription"])
                for one in await until(nodes.register, LIST, "subscriptions", 2)
            ]
            assert names == [("orders", "billing"), ("payments", "ledger")]
            path = f"{ONE}?topic=orders&name=billing"
            found = await until_equal(nodes.brokers[0], path, "lag_bytes", receipt.next_offset)
            assert found["lag_ms"] > 0
            [log] = found["logs"]
            assert (log["state"], log["member"], log["mark"]) == ("free", "", 0)
            async with client.subscription("orders", "billing", member="printer") as orders:
                message = await anext(orders)
                found = await until_equal(nodes.brokers[0], path, "members_count", 1)
                [member], [log] = found["members"], found["logs"]
                assert (member["member"], member["static"]) == ("printer", True)
                assert member["agent"].startswith("octopi-python/")
                assert (log["member"], log["attached"], log["claim"]) == ("printer", "printer", 1)
                assert (log["mark"], log["highwater"]) == (message.offset, receipt.next_offset)
                assert (log["why_unknown"], log["lost"]) == ("", [])
                assert found["logs_without_member"] == 0
                assert found["options"]["session_timeout_ms"] == 10_000


async def test_unknown_topics_and_subscriptions_are_answered_with_404(tmp_path: Path) -> None:
    async with serving_nodes(tmp_path) as nodes:
        await written(nodes, count=1)
        await until(nodes.brokers[0], "/api/v1/topics", "topics", 1)
        for path, status in (
            (f"{ONE}?topic=orders&name=billing", "unknown_subscription"),
            (f"{ONE}?topic=payments&name=billing", "unknown_topic"),
            (f"{LIST}?topic=payments", "unknown_topic"),
            (ONE, "unknown_topic"),
        ):
            page = await ask(nodes.brokers[0], path)
            assert (page.status, page.json["error"]["status"]) == (404, status)


async def test_subscriptions_come_in_pages_by_topic_and_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscription_watch, "LISTED_COUNT_MAX", 2)
    monkeypatch.setattr(subscription_watch, "LOGS_LOOKED_AT_MAX", 1)
    async with serving_nodes(tmp_path) as nodes, octopi.connect(nodes.register) as client:
        for topic in ("a", "b"):
            await client.create_topic(topic)
        for name in ("one", "three", "two"):
            await client.admin.create_subscription("a", name)
        await client.admin.create_subscription("b", "four")
        found = await until(nodes.brokers[0], LIST, "subscriptions", 3)
        assert [one["subscription"] for one in found] == ["one", "three", "four"]
        # Beyond the bound on what is looked at there are names, and nothing is guessed.
        assert [one["members_count"] for one in found] == [0, None, None]
        assert [one["lag_bytes"] for one in found] == [0, None, None]
        page = (await ask(nodes.brokers[0], LIST)).json
        assert (page["continued"], page["more"], page["silent"]) == (["a"], False, [])
        page = (await ask(nodes.brokers[0], f"{LIST}?topic=a")).json
        assert (page["more"], page["next"]) == (True, "three")
        page = (await ask(nodes.brokers[0], f"{LIST}?topic=a&after=three")).json
        assert [one["subscription"] for one in page["subscriptions"]] == ["two"]
        assert (page["more"], page["next"]) == (False, None)
        assert (await ask(nodes.brokers[0], f"{LIST}?after=b")).json["subscriptions"] == []


async def test_a_token_is_shown_the_subscriptions_that_it_grants_to_consume(
    tmp_path: Path,
) -> None:
    common = with_tokens(tmp_path, NodeSettings(), consume="*")
    mine = token("app", create="*", publish="*", subscribe="*", consume="*")
    async with serving_nodes(tmp_path, common=common) as nodes:
        async with octopi.connect(nodes.register, token=mine) as client:
            await client.create_topic("orders")
            for name in ("billing", "shipping"):
                await client.admin.create_subscription("orders", name)

        async def shown(bearer: str, path: str = LIST) -> Any:  # noqa: ANN401
            page = await ask(nodes.brokers[0], path, authorization=f"Bearer {bearer}")
            return page.json

        with trio.fail_after(20):
            while len((await shown(mine)).get("subscriptions", [])) < 2:  # noqa: ASYNC110
                await trio.sleep(0.1)  # nothing announces it
        some = token("some", consume="orders/bill*")
        found = (await shown(some))["subscriptions"]
        assert [one["subscription"] for one in found] == ["billing"]
        path = f"{ONE}?topic=orders&name="
        assert (await shown(some, f"{path}billing"))["subscription"] == "billing"
        error = (await shown(some, f"{path}shipping"))["error"]
        assert error["status"] == "unknown_subscription"
        other = token("other", subscribe="payments")
        assert (await shown(other))["subscriptions"] == []
        assert (await shown(other, f"{path}billing"))["error"]["status"] == "unknown_topic"


async def test_a_node_whose_token_does_not_grant_to_consume_says_so(tmp_path: Path) -> None:
    common = with_tokens(tmp_path, NodeSettings())
    mine = token("app", create="*", consume="*")
    async with serving_nodes(tmp_path, common=common) as nodes:
        async with octopi.connect(nodes.register, token=mine) as client:
            await client.create_topic("orders")
            await client.admin.create_subscription("orders", "billing")
        bearer = f"Bearer {mine}"
        with trio.fail_after(20):
            while not (  # noqa: ASYNC110
                page := (await ask(nodes.brokers[0], LIST, authorization=bearer)).json
            )["silent"]:
                await trio.sleep(0.1)  # nothing announces it
        [silent] = page["silent"]
        assert silent["topic"] == "orders"
        assert "--token-file" in silent["why"]
        assert page["subscriptions"] == []
        path = f"{ONE}?topic=orders&name=billing"
        found = await ask(nodes.brokers[0], path, authorization=bearer)
        assert (found.status, found.json["error"]["status"]) == (503, "forbidden")
        assert "--consume" in found.json["error"]["reason"]
