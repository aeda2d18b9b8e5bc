"""The server of the search page: on this machine only, at an address with a secret in it."""

import os
import secrets
import socket
from contextlib import suppress

import typer
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp

from polygrain.app.page.app import build
from polygrain.app.page.sides import Side

HOST = "127.0.0.1"
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}


def listen(port: int) -> socket.socket:
    """Return a socket that listens on 127.0.0.1; ValueError where the port cannot be used."""
    try:
        return socket.create_server((HOST, port))
    except OSError as error:
        raise ValueError(
            f"port {port} cannot be used ({os.strerror(error.errno or 0)}): choose another with --port"
        ) from error


def below_secret(page: ASGIApp, secret: str) -> Starlette:
    """Serve the page below /SECRET/ only, with headers that keep its content in this page."""

    def refuse(request: Request) -> Response:
        return PlainTextResponse("open the whole address that `polygrain search --page` prints\n", 403)

    async def add_headers(request: Request, call_next: RequestResponseEndpoint) -> Response:
        response = await call_next(request)
        response.headers.update(HEADERS)
        return response

    return Starlette(
        routes=[Mount(f"/{secret}", page), Route("/{path:path}", refuse)],
        middleware=[
            Middleware(TrustedHostMiddleware, allowed_hosts=[HOST, "localhost"]),
            Middleware(BaseHTTPMiddleware, dispatch=add_headers),
        ],
    )


def run(listening: socket.socket, sides: list[Side], above: float) -> None:
    """Print the address and answer until Ctrl-C; `above` as of `build`."""
    secret = secrets.token_urlsafe(24)
    config = uvicorn.Config(
        below_secret(build(sides, above), secret),
        log_level="warning",
        access_log=False,  # it would repeat the secret
        timeout_graceful_shutdown=1,
    )
    address = f"http://{HOST}:{listening.getsockname()[1]}/{secret}/"
    typer.echo(f"Search page: {address}  (Ctrl-C ends it; anyone on this machine with the address sees your images)")
    with suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[listening])
