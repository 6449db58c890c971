"""The pages of a register that isn't the active one."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

from octopi.admin.http_access import HttpAccessPolicy
from octopi.admin.register_view import StandbyNodeView
from octopi.admin.site import Site
from octopi.operating_system import SystemClock
from octopi.roles.register.group.standby import StandbyRegister
from octopi.roles.register.options import RegisterOptions
from octopi.transport.http_requests import Asker, HttpAnswer, HttpRequest, plain
from octopi.transport.server_statistics import ServerStatistics

PEERS = ("ws://a:7000", "ws://b:7000", "ws://c:7000")


def standby(active: str) -> Any:  # noqa: ANN401
    """A register at the first address, which takes the one at *active* for the active one."""
    return SimpleNamespace(
        options=RegisterOptions(listen="a:7000", data_directory="data", peers=PEERS),
        traffic=ServerStatistics(),
        cluster="c1",
        active_address=active,
    )


def site_of(active: str) -> Site:
    def console(request: HttpRequest) -> HttpAnswer:
        return plain(200, "console")

    site = Site(SystemClock(), console, HttpAccessPolicy())
    site.node = StandbyNodeView(cast(StandbyRegister, standby(active)))
    return site


async def asked(site: Site, path: str) -> tuple[int, Any]:
    answer = await site.answer(HttpRequest("GET", path, {}, {"host": "127.0.0.1"}, Asker("test")))
    return answer.status, json.loads(answer.body) if answer.body.startswith(b"{") else answer.body


async def test_a_standby_says_which_register_is_active() -> None:
    site = site_of(PEERS[1])
    status, page = await asked(site, "/api/v1/status")
    assert status == 200
    assert (page["role"], page["cluster"], page["ready"]) == ("register", "c1", True)
    assert (page["registers"], page["active_register"]) == ([*PEERS], PEERS[1])
    assert await asked(site, "/readyz") == (200, {"ready": True, "why": ""})
    status, metrics = await asked(site, "/metrics")
    assert (status, b"octopi_ready 1.0" in metrics) == (200, True)


async def test_a_standby_that_knows_of_no_active_register_is_not_ready() -> None:
    site = site_of("")
    assert await asked(site, "/readyz") == (503, {"ready": False, "why": "no register is active"})
    _, page = await asked(site, "/api/v1/status")
    assert page["active_register"] == ""
