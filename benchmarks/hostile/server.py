"""Who may tell the server of `polygrain ui` and `serve` what to run: requests, sockets, users and real browser pages.

Most of them want a shell command executed, by a deployment's steps, its file, or a work pool's command. The last three
are honest: the pages open by their link, and a run that the user starts ends well.
"""

import base64
import http.client
import http.server
import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path

import psutil
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

from benchmarks.hostile.outcome import Outcome
from pipeline import secret, server
from tests.helpers.browser import CHROMIUM, browse
from tests.pipeline import toy

COUNT = 400
NOBODY = 65534
SECRETS, TYPES = ("none", "wrong", "right"), ("application/json", "text/plain", "application/x-www-form-urlencoded")
SOCKETS = ("events/in", "events/out", "logs/out", "task_runs/subscriptions/scheduled")
# What a page of another origin can try; each answers with what it learnt, and most learn nothing.
PAGE = """<!DOCTYPE html><meta charset="utf-8"><iframe name="inner"></iframe><script>
const api = "API", said = {};
const shell = JSON.stringify({pull_steps: [{"prefect.deployments.steps.run_shell_script": {script: "touch MARK"}}]});
const run = `${api}/deployments/DEPLOYMENT/create_flow_run`, text = {"Content-Type": "text/plain"};
async function tried(name, options, address) {
  try { const reply = await fetch(address, options); said[name] = reply.type === "opaque" ? "opaque" : "answered"; }
  catch (error) { said[name] = "refused"; }
}
function form(address) {
  const made = document.createElement("form");
  Object.assign(made, {method: "post", action: address, enctype: "text/plain", target: "inner"});
  const field = document.createElement("input");
  Object.assign(field, {name: '{"state": {"type": "SCHEDULED"}, "x": "', value: '"}'});
  made.append(field); document.body.append(made); made.submit();
}
function socket(name) {
  said[name] = "no answer";
  const made = new WebSocket(api.replace("http", "ws") + "/" + name, ["prefect"]);
  made.onopen = () => { said[name] = "answered"; };
  made.onerror = () => { said[name] = "refused"; };
}
(async () => {
  await tried("read", {}, `${api}/health`);
  await tried("patch", {method: "PATCH", headers: {"Content-Type": "application/json"}, body: shell},
    `${api}/deployments/DEPLOYMENT`);
  await tried("post as text", {method: "POST", mode: "no-cors", headers: text, body: "{}"}, run);
  await tried("post with credentials", {method: "POST", mode: "no-cors", credentials: "include", body: "{}"}, run);
  await tried("link", {}, `${api.replace("/api", "")}/enter?ticket=0.0`);
  for (const name of SOCKETS) socket(name);
  form(run);
  await fetch("/wait");
  await fetch("/said", {method: "POST", body: JSON.stringify(said)});
})();
</script>"""


@dataclass(frozen=True)
class World:
    """A clone whose server runs and whose flow is served, and what an attack must not make."""

    clone: Path
    api: str
    key: str
    deployment: str
    mark: Path

    @property
    def port(self) -> int:
        return int(self.api.split(":")[2].split("/")[0])


def run(count: int, seed: int, folder: Path) -> Iterator[Outcome]:
    """So many requests and sockets, drawn; then, however few those are, users, browsers and the honest ones."""
    with world(folder) as made:
        before = deployment_of(made)
        drawn = list(requests(made))
        random.Random(seed).shuffle(drawn)
        others = [*users(made, folder), *browsers(made, folder)]
        last = 3 if CHROMIUM is not None else 2
        for attack in drawn[: max(1, count - len(others) - last)]:
            yield attack()
        yield from others
        time.sleep(3)
        after = deployment_of(made)
        runs = server.call(made.api, "/flow_runs/count", {})
        changed = any(after.get(name) != before[name] for name in ("id", "pull_steps", "entrypoint"))
        done = f"runs: {runs}, changed: {changed}, executed: {made.mark.exists()}"
        yield Outcome("what all of them left", "escape" if runs or changed or made.mark.exists() else "fine", done)
        yield from honest(made, folder)


@contextmanager
def world(folder: Path) -> Iterator[World]:
    """`polygrain ui` and `polygrain serve` of a small clone in a folder that every user may enter."""
    folder.chmod(0o755)
    clone = toy.make(folder / "clone", first=1, second=1)
    (clone / "pipeline").symlink_to(toy.ROOT / "pipeline")
    key, port = secret.of(clone), server.free_port()
    kept = os.environ.get(secret.VARIABLE)
    api = f"http://127.0.0.1:{port}/api"
    start = partial(subprocess.Popen, cwd=clone, env=toy.ENVIRONMENT, start_new_session=True)
    with (folder / "log").open("w") as log:
        started = [start([sys.executable, "-m", "polygrain", "ui", "--port", str(port)], stdout=log, stderr=log)]
        try:
            wait(lambda: server.find_own(clone, key))
            os.environ[secret.VARIABLE] = key
            started.append(start([sys.executable, "-m", "polygrain", "serve"], stdout=log, stderr=log))
            wait(lambda: server.call(api, "/deployments/filter", {}))
            (found,) = server.call(api, "/deployments/filter", {})
            yield World(clone, api, key, found["id"], folder / "executed")
        finally:
            for process in reversed(started):
                process.terminate()
            for process in started:
                process.wait(60)
            if kept is None:
                os.environ.pop(secret.VARIABLE, None)
            else:
                os.environ[secret.VARIABLE] = kept


def wait(ready: object, seconds: float = 180) -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not ready after {seconds} s")
        time.sleep(0.2)


def deployment_of(made: World) -> dict:
    """What is served now; empty where someone has deleted it."""
    (found,) = server.call(made.api, "/deployments/filter", {}) or [{}]
    return found


def requests(made: World) -> Iterator[object]:
    """Every request by everyone who must not make it, and every socket."""
    shell = {"prefect.deployments.steps.run_shell_script": {"script": f"touch {made.mark}"}}
    one, command = f"/api/deployments/{made.deployment}", {"command": f"touch {made.mark}"}
    template = {"job_configuration": command, "variables": {"properties": {}}}
    programs = [
        ("PATCH", one, {"pull_steps": [shell]}),
        ("PATCH", one, {"entrypoint": str(made.mark) + ".py:main"}),
        ("POST", f"{one}/create_flow_run", {"job_variables": command}),
        ("POST", "/api/work_pools/", {"name": "x", "type": "process", "base_job_template": template}),
    ]
    plain = [
        ("POST", f"{one}/create_flow_run", {}),
        ("POST", "/api/flow_runs/filter", {}),
        ("DELETE", one, None),
        ("GET", "/api/admin/settings", None),
    ]
    own = f"127.0.0.1:{made.port}"
    named = [f"{name}:{made.port}" for name in ("evil.example", "localhost", "127.0.0.1.evil.example")]
    hosts = (own, "evil.example", *named, "")
    origins = (None, f"http://{own}", "http://evil.example", f"http://127.0.0.1:{made.port + 1}", "null")
    for host, origin, held in product(hosts, origins, SECRETS):
        is_own = host == own and origin in (None, f"http://{own}") and held == "right"
        for (method, path, body), kind in product(programs if is_own else programs + plain, TYPES):
            yield partial(ask, made, method, path, body, kind, host, origin, held)
        for name in () if is_own or not host else SOCKETS:
            yield partial(connects, made, name, host, origin, held)


def key_of(made: World, held: str) -> str | None:
    return {"none": None, "wrong": "polygrain:wrong", "right": made.key}[held]


def ask(made: World, method: str, path: str, body, kind: str, host: str, origin: str | None, held: str) -> Outcome:
    """One request, sent as it is by something that is no browser."""
    case = f"{method} {path} {body and next(iter(body), '')} as {kind}, Host {host}, Origin {origin}, secret {held}"
    link = http.client.HTTPConnection("127.0.0.1", made.port, timeout=30)
    text = b"" if body is None else json.dumps(body).encode()
    link.putrequest(method, path, skip_host=True)
    headers = {"Host": host, "Origin": origin, "Content-Type": kind, "Content-Length": str(len(text))}
    if key := key_of(made, held):
        headers["Authorization"] = f"Basic {base64.b64encode(key.encode()).decode()}"
    for name, value in headers.items():
        if value is not None:
            link.putheader(name, value)
    try:
        link.endheaders(text)
        reply = link.getresponse()
        said = reply.read().decode(errors="replace")
    except TimeoutError:
        return Outcome(case, "hang")
    finally:
        link.close()
    if reply.status >= 500 or "Traceback" in said:
        return Outcome(case, "raw", f"{reply.status} {said[:200]}")
    return Outcome(case, "clear" if reply.status >= 400 and said else "escape", f"{reply.status} {said[:200]}")


def connects(made: World, name: str, host: str, origin: str | None, held: str) -> Outcome:
    """One socket, with the first message that Prefect asks for."""
    case = f"socket {name}, Host {host}, Origin {origin}, secret {held}"
    said = ""
    # What refuses is a handshake that fails, a socket that is closed, or one that answers nothing else.
    with suppress(WebSocketException, OSError):
        raw = socket.create_connection(("127.0.0.1", made.port), timeout=20)
        with raw, connect(f"ws://{host}/api/{name}", sock=raw, origin=origin, subprotocols=["prefect"]) as opened:
            opened.send(json.dumps({"type": "auth", "token": key_of(made, held)}))
            said = opened.recv(timeout=20)
    return Outcome(case, "escape" if "auth_success" in said else "clear", said)


def users(made: World, folder: Path) -> list[Outcome]:
    """Another user of the machine, who may read what the system lets anyone read."""
    words = [" ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])]
    told = [line for line in words if made.key in line or secret.basic(made.key) in line]
    found = [Outcome("the secret on a command line", "escape" if told else "clear", str(told))]
    if os.getuid():
        return found
    gates = [one.pid for one in psutil.process_iter(["cmdline"]) if str(made.port) in (one.info["cmdline"] or [])]
    home = made.clone / ".prefect"
    files = [home / "secret", home / "prefect.db", home / "address", home, *(f"/proc/{pid}/environ" for pid in gates)]
    for file in files:
        done = subprocess.run(["cat", file], user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True)
        verdict = "clear" if done.returncode and b"Permission denied" in done.stderr else "escape"
        found.append(Outcome(f"another user reads {Path(file).name}", verdict, done.stderr.decode()[-200:]))
    return found


def browsers(made: World, folder: Path) -> list[Outcome]:
    """A page on another port, and one whose name leads here, in a browser that the user has opened the pages in."""
    if CHROMIUM is None:
        return []
    profile = f"--user-data-dir={folder / 'browser'}"
    browse(server.link(made.api, made.key), profile, "--dump-dom")
    found = []
    for name in ("127.0.0.1", "evil.example"):
        api = made.api.replace("127.0.0.1", name)
        page = PAGE.replace("API", api).replace("MARK", str(made.mark)).replace("DEPLOYMENT", made.deployment)
        with listening(page.replace("SOCKETS", json.dumps(SOCKETS))) as (port, said):
            rules = "--host-resolver-rules=MAP evil.example 127.0.0.1"
            browse(f"http://{name}:{port}/", profile, rules, "--dump-dom")
        missing = {} if said else {"the page": "not run"}
        for attack, answer in (said or missing).items():
            # An opaque answer is none; whether it had an effect is looked at in the end.
            verdict = "clear" if answer in ("refused", "no answer", "opaque") else "escape"
            found.append(Outcome(f"a page of {name}:{port}: {attack}", verdict, answer))
    text = browse(f"http://evil.example:{made.port}/", profile, rules, "--dump-dom")
    verdict = "clear" if "is not this server's" in text else "escape"
    return [*found, Outcome("the pages by another name", verdict, text[:200])]


@contextmanager
def listening(page: str) -> Iterator[tuple[int, dict[str, str]]]:
    """A web server of someone else on this machine: its port, and what its page has found out."""
    said: dict[str, str] = {}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/wait":
                # The browser's clock jumps ahead while nothing is being fetched.
                time.sleep(3)
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(page.encode())

        def do_POST(self) -> None:
            said.update(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield made.server_port, said
        made.shutdown()


def honest(made: World, folder: Path) -> Iterator[Outcome]:
    """What must go on working: the pages by their link, and a run that is started by who has the secret."""
    if CHROMIUM is not None:
        text = browse(server.link(made.api, made.key), f"--user-data-dir={folder / 'other'}", "--dump-dom")
        yield Outcome("the pages by their link", "fine" if "Dashboard" in text else "raw", text[-300:])
    path = f"/deployments/{made.deployment}/create_flow_run"
    one = server.call(made.api, path, {"state": {"type": "SCHEDULED"}})["id"]
    ended = ("COMPLETED", "FAILED", "CRASHED")
    wait(lambda: server.call(made.api, f"/flow_runs/{one}")["state_type"] in ended)
    state = server.call(made.api, f"/flow_runs/{one}")["state"]
    is_right = state["type"] == "COMPLETED" and (made.clone / "data/last/text").exists()
    yield Outcome("a run by who has the secret", "fine" if is_right else "raw", str(state["message"])[:300])
