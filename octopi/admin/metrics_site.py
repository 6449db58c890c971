"""Serves metrics on a listener of their own, for scrapers that have neither token nor
certificate."""

from __future__ import annotations

from octopi.admin.site import Site
from octopi.transport.http_requests import HttpAnswer, HttpRequest, plain


class MetricsSite:
    """The health and the metrics of a node, and nothing else."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def refuse_upgrade(self, request: HttpRequest) -> HttpAnswer | None:
        return plain(404, "only /metrics, /healthz and /readyz are here")

    async def answer(self, request: HttpRequest) -> HttpAnswer:
        if request.path in {"/healthz", "/readyz"}:
            return await self._site.answer(request)
        if request.path == "/metrics":
            return await self._site.metrics_page()
        return plain(404, "only /metrics, /healthz and /readyz are here")
