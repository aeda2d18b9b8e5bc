"""Prefect's server for this user's browser and processes only: `python -m pipeline.gate PORT`.

Prefect asks for the secret where it is given one. It knows no allowed hosts, answers a page of any origin, and runs
whatever a deployment names. So this stands before it. It refuses

- a Host or an Origin that is not the server's own address, for sockets too: a page of another site, or of another
  program on this machine, has another origin, and one that has its name resolve to 127.0.0.1 another host;
- a call of the API without the secret, before its body is read;
- a deployment, run or work pool that names any program but the project's own flows;

and opens the pages by a link that works once (`enter`). It adds one page (pipeline/live.py). The secret comes by the
environment.
"""

import hmac
import json
import os
import secrets
import sys
import time

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pipeline import live, secret

ENTER, PROOF, LIVE = "/enter", "/proof", "/live"
TICKET_SECONDS = 3600
OPEN = ("/api/health", "/api/ready")
"""They say whether the server runs, and nothing else."""
FLOWS = ("pipeline/flows.py:reproduce", "pipeline.pool.reproduce_here")
STEP = "prefect.deployments.steps.set_working_directory"
PAGE = """<!DOCTYPE html><meta charset="utf-8"><title>polygrain</title>
<script nonce="{nonce}">localStorage.setItem("prefect-password", {word}); location.replace({to})</script>
"""
# Scripts of Prefect's pages alone, nothing sent elsewhere, no frame around them. The graph is drawn by compiled code.
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-eval' 'wasm-unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; worker-src 'self' blob:; connect-src 'self' {socket}; "
    "frame-ancestors 'none'; form-action 'self'; base-uri 'none'; object-src 'none'"
)


def program(value: object) -> str | None:
    """The first part of a request that would have a process run anything but the project's flows; None without one."""
    if isinstance(value, list):
        return next(filter(None, map(program, value)), None)
    if not isinstance(value, dict):
        return None
    for key, inner in value.items():
        # The arguments of a flow are data; everything else is looked at, however deep.
        if inner and key != "parameters" and (not harmless(key, inner) or program(inner)):
            return program(inner) or f"{key}: {json.dumps(inner)[:200]}"
    return None


def harmless(key: str, value: object) -> bool:
    """Whether this key cannot lead to another program than the project's flows."""
    if key == "pull_steps":
        return isinstance(value, list) and all(is_working_directory(step) for step in value)
    if key == "entrypoint":
        return value in FLOWS
    if key == "base_job_template":
        from prefect.workers.process import ProcessWorker

        return value == ProcessWorker.get_default_base_job_template()
    # Prefect's words for commands, environments and code from elsewhere, today's and yesterday's.
    return key not in ("job_variables", "infra_overrides", "storage_document_id", "infrastructure_document_id")


def is_working_directory(step: object) -> bool:
    """The one step that `flow.serve` writes. A step may also name packages to install first."""
    return isinstance(step, dict) and list(step) == [STEP] and list(step[STEP]) == ["directory"]


def foreign(headers: Headers, host: str) -> str | None:
    """What is wrong with where a request comes from or goes to, at the server that answers to this host."""
    hosts, origins, own = headers.getlist("host"), headers.getlist("origin"), f"http://{host}"
    if hosts != [host]:
        return f"Host {', '.join(hosts)[:200]!r} is not this server's: it answers to {host} only\n"
    if any(origin != own for origin in origins):
        return f"Origin {', '.join(origins)[:200]!r} is not this server's: only pages of {own} may ask it\n"
    return None


class Gate:
    """Hands on to the app what comes from this user."""

    def __init__(self, app: ASGIApp, port: int, key: str) -> None:
        self.app, self.key = app, key
        self.host = f"127.0.0.1:{port}"
        self.origin = f"http://{self.host}"
        self.policy = POLICY.format(socket=f"ws://{self.host}").encode()
        self.started, self.used = time.time_ns(), set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif wrong := foreign(Headers(scope=scope), self.host):
            await self.refuse(403, wrong, scope, receive, send)
        elif scope["type"] == "websocket":
            # Prefect asks for the secret in a socket's first message.
            await self.app(scope, receive, send)
        elif scope["path"] == PROOF:
            words = Request(scope).query_params.get("of", "")
            await PlainTextResponse(secret.proof(self.key, self.host, words))(scope, receive, send)
        elif scope["path"] == ENTER:
            await self.enter(scope, receive, send)
        elif scope["path"] == LIVE:
            await live.page()(scope, receive, send)
        elif scope["path"].startswith("/api"):
            await self.call(scope, receive, send)
        else:
            await self.app(scope, receive, self.with_policy(send))

    async def call(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The API, for who has the secret."""
        word = Headers(scope=scope).get("authorization", "")
        expected = f"Basic {secret.basic(self.key)}"
        if scope["path"] not in OPEN and not hmac.compare_digest(word.encode(), expected.encode()):
            hint = "open the link that `polygrain ui` prints; processes read the secret in .prefect/secret\n"
            return await self.refuse(401, f"this server wants its clone's secret: {hint}", scope, receive, send)
        if scope["method"] in ("POST", "PUT", "PATCH"):
            body = await Request(scope, receive).body()
            try:
                found = program(json.loads(body)) if body else None
            except (ValueError, RecursionError):
                return await self.refuse(400, "the body is no JSON\n", scope, receive, send)
            if found:
                hint = f"{', '.join(FLOWS)}, in a working directory and by nothing else\n"
                return await self.refuse(403, f"refused: {found}; this server runs {hint}", scope, receive, send)
            receive = again(body, receive)
        await self.app(scope, receive, self.with_policy(send))

    async def enter(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Gives the secret to a browser that brings an unused ticket, where Prefect's pages look for it."""
        query = Request(scope).query_params
        word, to = query.get("ticket", ""), query.get("to", "/")
        moment = secret.issued(self.key, word)
        is_fresh = moment is not None and max(self.started, time.time_ns() - TICKET_SECONDS * 10**9) < moment
        if not is_fresh or moment in self.used:
            hint = f"a link works once, within {TICKET_SECONDS // 60} minutes; `polygrain ui` prints another\n"
            return await self.refuse(403, hint, scope, receive, send)
        self.used.add(moment)
        nonce = secrets.token_urlsafe(16)
        # Always a place on this server, whatever is asked for.
        place = json.dumps(f"{self.origin}/{to.lstrip('/')}").replace("<", "\\u003c")
        page = PAGE.format(nonce=nonce, word=json.dumps(secret.basic(self.key)), to=place)
        headers = {
            "content-security-policy": f"default-src 'none'; script-src 'nonce-{nonce}'; frame-ancestors 'none'",
            "cache-control": "no-store",
            "referrer-policy": "no-referrer",
        }
        await HTMLResponse(page, headers=headers)(scope, receive, send)

    async def refuse(self, status: int, message: str, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008, "reason": message[:100]})
        else:
            await PlainTextResponse(message, status)(scope, receive, send)

    def with_policy(self, send: Send) -> Send:
        """The same, with what a browser may do on these pages."""

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"content-security-policy", self.policy)]
            await send(message)

        return sent


def again(body: bytes, receive: Receive) -> Receive:
    """What the app receives of a request whose body has been read."""
    left: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def received() -> Message:
        return left.pop() if left else await receive()

    return received


def main() -> None:
    port, key = int(sys.argv[1]), os.environ[secret.VARIABLE]
    import uvicorn
    from prefect.server.api.server import create_app

    app = Gate(create_app(final=True), port, key)
    # The access log would hold the links.
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning", access_log=False, timeout_keep_alive=5)


if __name__ == "__main__":
    main()
