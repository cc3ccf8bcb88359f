"""`GET healthz`, `readyz` and `metrics`, for whoever watches over the program."""

from __future__ import annotations

from fastapi import FastAPI
from fastapi import Request as HttpRequest
from fastapi.responses import JSONResponse, Response
from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from cosy_engine import Engine
from cosy_ui.jobs import JobTable
from cosy_ui.ledger import Now
from cosy_ui.login import guarded
from cosy_ui.sessions import Sessions
from cosy_ui.words import language, say

HERE = ("127.0.0.1", "::1", "localhost")
NO_STORE = {"Cache-Control": "no-store"}


def add_health_routes(app: FastAPI, engine: Engine, jobs: JobTable, sessions: Sessions) -> None:
    """healthz and readyz are open to all and tell nothing else."""
    guests, ledger = jobs.guests, jobs.ledger
    ledger.registry.register(Now(engine, guests, sessions, jobs))

    def healthz() -> JSONResponse:
        """200 while the engine's worker lives; 503: start the program again."""
        alive = engine.worker.alive()
        return JSONResponse({"status": "ok" if alive else "broken"}, 200 if alive else 503, NO_STORE)

    def readyz() -> JSONResponse:
        """200 when requests run at their full speed; 503 while warming up (they are served, slower) or stopping."""
        done, total = engine.warm_up_progress()
        ready = done == total and engine.worker.alive() and not guests.closing
        told = {"ready": ready, "warm_up": {"done": done, "total": total}, "stopping": guests.closing}
        return JSONResponse(told, 200 if ready else 503, NO_STORE)

    def metrics(http: HttpRequest) -> Response:
        """Prometheus text. Where strangers reach the page without a login, only for this machine itself."""
        if guests.shared and app.auth is None and not is_here(http):
            return JSONResponse({"error": say("metrics_here", language(http))}, 403, NO_STORE)
        return Response(generate_latest(ledger.registry), media_type=CONTENT_TYPE_LATEST, headers=NO_STORE)

    for path, answer in (("/healthz", healthz), ("/readyz", readyz)):
        app.add_api_route(path, answer, methods=["GET", "HEAD"], include_in_schema=False, response_model=None)
        app.router.routes.insert(0, app.router.routes.pop())
    guarded(app, guests, "/metrics", metrics)


def is_here(http: HttpRequest) -> bool:
    """Whether a call comes from this machine and through no proxy or tunnel."""
    passed_on = {"x-forwarded-for", "x-forwarded-host", "forwarded", "via", "x-real-ip"} & set(http.headers)
    return not passed_on and http.client is not None and http.client.host in HERE and http.url.hostname in HERE
