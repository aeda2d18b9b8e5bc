"""Where the search page listens: on this machine only, at an address with a secret in it."""

import ipaddress
import secrets
import socket
from contextlib import suppress

import typer
import uvicorn

from polygrain.app.page.app import build
from polygrain.app.page.door import Door
from polygrain.app.page.sides import Side

CONNECTIONS = 64


def listen(host: str, port: int) -> socket.socket:
    """A socket on this machine's own address; ValueError for any other address, and for a port that is taken."""
    try:
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError as error:
        raise ValueError(f"host is {host!r}, which is no address: leave it at 127.0.0.1") from error
    if not address.is_loopback:
        raise ValueError(
            f"host is {host}, which others can reach, and the page shows your images: leave it at 127.0.0.1; from "
            f"another machine, open it through `ssh -L {port}:127.0.0.1:{port} this-machine`"
        )
    listening = socket.socket(socket.AF_INET6 if address.version == 6 else socket.AF_INET)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((str(address), port))
        listening.listen()
    except OSError as error:
        listening.close()
        if isinstance(error, PermissionError):
            raise ValueError(f"port {port} needs more rights than yours: choose another (`--port 4300`)") from error
        raise ValueError(f"port {port} is taken: choose another (`--port {min(port + 1, 65535)}`)") from error
    return listening


def run(listening: socket.socket, sides: list[Side]) -> None:
    """Answers until Ctrl-C; the address is printed."""
    name, port = listening.getsockname()[:2]
    host, secret = f"[{name}]:{port}" if ":" in name else f"{name}:{port}", secrets.token_urlsafe(24)
    # Neither a log nor a header repeats the secret.
    config = uvicorn.Config(
        Door(build(sides), host, secret),
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=CONNECTIONS,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=1,
    )
    typer.echo(f"Search page: http://{host}/{secret}/  (Ctrl-C ends it; who has the whole address sees your images)")
    with suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[listening])
