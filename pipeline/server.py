"""The Prefect server of this clone, `polygrain ui`: on 127.0.0.1 alone, for holders of this start's auth string.

Prefect asks for the string itself. Around its app stand a check of the Host, a policy that lets its pages load and send
nothing elsewhere, and `/enter`, which gives the string to the browser. The history is in .prefect/.
"""

import base64
import errno
import importlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import psutil

from pipeline import process_group, project

START_SECONDS = 600
GONE_SECONDS, OWN_GONE_SECONDS = 60, 2
"""How long a run waits for a server that may be restarted, and for its own, which is never restarted."""
SILENT_SECONDS = 90
AUTOMATION = "crash silent runs"
# The graph of a run is drawn by compiled code.
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-eval' 'wasm-unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; worker-src 'self' blob:; connect-src 'self' ws://127.0.0.1:*; "
    "frame-ancestors 'none'; form-action 'self'; base-uri 'none'; object-src 'none'"
)
# A browser does not send the part behind the #.
SCRIPT = """
localStorage.setItem("prefect-password", location.hash.slice(1));
const run = new URLSearchParams(location.search).get("run");
location.replace("/runs" + (run ? "/flow-run/" + encodeURIComponent(run) : ""));
"""


class Server(NamedTuple):
    """The address of a server, and the auth string that it asks for (empty: none)."""

    api: str
    auth: str = ""

    @property
    def pages(self) -> str:
        return self.api.removesuffix("/api")

    def link(self, run: UUID | None = None) -> str:
        """The address of this run's page, or of the list of all runs."""
        if not self.auth:
            return f"{self.pages}/runs{f'/flow-run/{run}' if run else ''}"
        return f"{self.pages}/enter{f'?run={run}' if run else ''}#{self.word()}"

    def word(self) -> str:
        """The auth string as Prefect's pages keep it and its clients send it."""
        return base64.b64encode(self.auth.encode()).decode()

    def call(self, path: str, body: dict | None = None, tries: int = 10) -> list | dict | str:
        """The API's answer to a POST of the body, or to a GET.

        A server with a locked database answers 503 and has done nothing; it is asked again, as Prefect's client does.
        """
        headers = {"Content-Type": "application/json"}
        if self.auth:
            headers["Authorization"] = f"Basic {self.word()}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.api}{path}", data, headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:
                return json.load(reply)
        except urllib.error.HTTPError as error:
            if error.code != HTTPStatus.SERVICE_UNAVAILABLE or tries == 1:
                raise
            error.close()
        time.sleep(1)
        return self.call(path, body, tries - 1)

    def answers(self) -> bool:
        """Whether it is there, and takes the auth string."""
        try:
            return bool(self.call("/admin/version"))
        except (OSError, ValueError):
            return False

    def use(self) -> None:
        """Makes this process, and those that it starts, speak with this server.

        ValueError where a variable keeps Prefect's client from speaking with any.
        """
        os.environ["PREFECT_API_URL"] = self.api
        if self.auth:
            os.environ["PREFECT_API_AUTH_STRING"] = self.auth
        if "prefect" in sys.modules:
            try:
                importlib.import_module("httpx").Client().close()
            except Exception as error:
                names = [name for name in os.environ if name.lower().endswith("_proxy") or name.startswith("SSL")]
                raise ValueError(f"{', '.join(names)}: one of these variables cannot be used ({error})") from error
            importlib.import_module("prefect.context").refresh_global_settings_context()


def find(root: Path) -> Server | None:
    """The server to use: the one that PREFECT_API_URL names, else this clone's own if it runs, else None.

    ValueError if the one named does not answer.
    """
    if named := os.environ.get("PREFECT_API_URL"):
        server = Server(named, os.environ.get("PREFECT_API_AUTH_STRING", ""))
        if not server.answers():
            raise ValueError(
                f"the Prefect server at PREFECT_API_URL={named} does not answer or refuses access: start one with "
                "`polygrain ui`, set PREFECT_API_AUTH_STRING to what its .prefect/auth holds, or unset PREFECT_API_URL"
            )
        return server
    files = [root / ".prefect" / name for name in ("address", "auth")]
    if not all(file.exists() for file in files):
        return None
    server = Server(*(file.read_text(encoding="utf-8").strip() for file in files))
    return server if server.answers() else None


def required(root: Path) -> Server:
    """The result of `find`; ValueError also where no server runs."""
    if (server := find(root)) is None:
        raise ValueError("no Prefect server is known: start `polygrain ui` in another terminal, or set PREFECT_API_URL")
    return server


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(root: Path, port: int) -> tuple[psutil.Popen, Server]:
    """A server that ends with this process, once it answers; ValueError if it does not start."""
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", port)) == 0:
            raise ValueError(f"port {port} is taken: choose another (`polygrain ui --port 4201`)")
    home = root / ".prefect"
    home.mkdir(mode=0o700, exist_ok=True)
    server = Server(f"http://127.0.0.1:{port}/api", f"polygrain:{secrets.token_urlsafe(32)}")
    environment = {
        # Without this address the pages call port 4200, which may be another program's.
        "PREFECT_SERVER_UI_API_URL": server.api,
        "PREFECT_API_URL": server.api,
        "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": server.pages,
        "PREFECT_SERVER_API_AUTH_STRING": server.auth,
        "PREFECT_API_AUTH_STRING": server.auth,
        "PREFECT_HOME": str(home),
        "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    log = home / "server.log"
    with log.open("wb") as stream:
        command = [sys.executable, "-m", "pipeline.server", str(port)]
        process = process_group.start(command, root, environment, stdout=stream, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + START_SECONDS
        while not server.answers():
            if process.poll() is not None or time.monotonic() > deadline:
                last = "\n".join(log.read_text(errors="replace").splitlines()[-5:])
                raise ValueError(f"the Prefect server did not start; {log} ends with:\n{last}")
            time.sleep(0.1)
        mark_silent_runs(server)
    except BaseException:
        process_group.end(process, 0)
        raise
    return process, server


def mark_silent_runs(server: Server) -> None:
    """Has the server mark runs as Crashed that sent no heartbeat for `SILENT_SECONDS`: a killed process cannot."""
    beat, ends = "prefect.flow-run.heartbeat", ("Completed", "Failed", "Cancelled", "Crashed")
    message = f"no sign of life for {SILENT_SECONDS} s: the process was killed or its machine is gone"
    automation = {
        "name": AUTOMATION,
        "trigger": {
            "type": "event",
            "posture": "Proactive",
            "after": [beat],
            "expect": [beat, *(f"prefect.flow-run.{state}" for state in ends)],
            "match": {"prefect.resource.id": ["prefect.flow-run.*"]},
            "for_each": ["prefect.resource.id"],
            "threshold": 1,
            "within": SILENT_SECONDS,
        },
        "actions": [{"type": "change-flow-run-state", "state": "CRASHED", "message": message}],
    }
    if AUTOMATION not in {item["name"] for item in server.call("/automations/filter", {})}:
        server.call("/automations/", automation)


def end_without(server: Server, patience: int) -> None:
    """Ends this process when the server is gone for `patience` seconds: Prefect would ask for a minute at each step."""
    address, refused = urllib.parse.urlsplit(server.api), 0
    while refused <= patience:
        time.sleep(1)
        with socket.socket() as probe:
            probe.settimeout(5)
            code = probe.connect_ex((address.hostname, address.port or 80))
        refused = refused + 1 if code == errno.ECONNREFUSED else 0
    sys.stderr.write(f"error: the server at {server.api} is gone; run again: finished stages are kept\n")
    sys.stderr.flush()
    # The processes that this one has started end with it.
    os._exit(1)


def main(port: int = 4200) -> None:
    """Serves the pages until it is stopped; where they are served already, prints the link."""
    root = project()
    if root is None:
        raise ValueError(f"{Path.cwd()} is in no project: change to a clone of polygrain")
    if running := find(root):
        sys.stdout.write(f"The server runs already: {running.link()}\n")
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    process, server = start(root, port)
    files = {root / ".prefect/address": server.api, root / ".prefect/auth": server.auth}
    try:
        for file, text in files.items():
            file.unlink(missing_ok=True)
            file.touch(mode=0o600)
            file.write_text(f"{text}\n")
        sys.stdout.write(f"Watch runs at {server.link()}\nThe link lets a browser in until this ends (Ctrl-C).\n")
        sys.stdout.flush()
        sys.exit(process.wait())
    except KeyboardInterrupt:
        sys.exit(0)
    finally:
        for file in files:
            file.unlink(missing_ok=True)
        process_group.end(process, 0)


def serve(port: int) -> None:
    """Prefect's app with our middleware."""
    import prefect
    import uvicorn
    from prefect.server.api.server import create_app
    from starlette.datastructures import MutableHeaders
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.responses import HTMLResponse
    from starlette.types import Message, Receive, Scope, Send

    # Of its two kinds of pages only the one with a button to cancel a run, whatever a browser was once asked to prefer.
    prefect.__ui_v2_static_path__ = Path(os.devnull) / "none"
    pages = create_app(final=True)
    page = f'<!DOCTYPE html><meta charset="utf-8"><title>polygrain</title><script>{SCRIPT}</script>'
    enter = HTMLResponse(page, headers={"content-security-policy": "default-src 'none'; script-src 'unsafe-inline'"})

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        async def with_policy(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["content-security-policy"] = POLICY
            await send(message)

        if scope["type"] == "http" and scope["path"] == "/enter":
            await enter(scope, receive, send)
        else:
            await pages(scope, receive, with_policy)

    checked = TrustedHostMiddleware(app, allowed_hosts=["127.0.0.1"])
    uvicorn.run(checked, host="127.0.0.1", port=port, log_level="warning", timeout_graceful_shutdown=3)


if __name__ == "__main__":
    serve(int(sys.argv[1]))
