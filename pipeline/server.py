"""The Prefect server of this project, `polygrain ui`.

It listens on 127.0.0.1 only and answers this user alone (pipeline/gate.py), keeps its history in .prefect/, and marks
runs that give no sign of life as Crashed.
"""

import hmac
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
from collections.abc import Callable
from pathlib import Path

from pipeline import gate, guard, private, project, secret, tables

START_SECONDS, SECONDS_BETWEEN_WORDS = 1800, 10
"""How long a server may take that is alive, on a machine with much else to do, and how often it is said meanwhile."""
AUTOMATION = "crash silent runs"
SILENT_SECONDS = 90
GONE_SECONDS, OWN_GONE_SECONDS = 60, 2
"""What a run waits for a server that someone may start again, and for its own, which nobody does."""


def answers(api: str) -> bool:
    """Whether a Prefect server is at this address."""
    try:
        with urllib.request.urlopen(f"{api}/health", timeout=5) as reply:
            return reply.read().strip() == b"true"
    except (OSError, ValueError):
        return False


def is_own(api: str, key: str) -> bool:
    """Whether the server at this address knows the clone's secret; it is asked in a way that does not tell it.

    Anyone may listen where a server of ours was killed, and would be told the secret by the next to call.
    """
    words = secrets.token_urlsafe(16)
    expected = secret.proof(key, urllib.parse.urlsplit(api).netloc, words)
    try:
        with urllib.request.urlopen(f"{api.removesuffix('/api')}{gate.PROOF}?of={words}", timeout=5) as reply:
            return hmac.compare_digest(reply.read(100), expected.encode())
    except (OSError, ValueError):
        return False


def takes_calls(api: str) -> bool:
    """Whether the server at this address lets this process in."""
    try:
        call(api, "/admin/version")
    except urllib.error.HTTPError as error:
        return error.code not in (401, 403)
    return True


def address_file(root: Path) -> Path:
    return root / ".prefect" / "address"


def find(root: Path) -> str | None:
    """The API address of a server to use: that of PREFECT_API_URL, else this project's own if it runs, else None.

    ValueError if PREFECT_API_URL names one that does not answer, or that wants another secret.
    """
    named, key = os.environ.get("PREFECT_API_URL"), secret.of(root)
    if named:
        if not answers(named):
            raise ValueError(
                f"no Prefect server answers at PREFECT_API_URL={named}: start one with `polygrain ui`, or unset "
                "PREFECT_API_URL to have one for this run alone"
            )
        use(named, key)
        if not takes_calls(named):
            raise ValueError(
                f"the server at PREFECT_API_URL={named} wants the secret of the clone that started it: copy that "
                f"clone's .prefect/secret to {root / '.prefect' / 'secret'} (mode 600), or set {secret.VARIABLE}"
            )
        return named
    return find_own(root, key)


def find_own(root: Path, key: str) -> str | None:
    """The API address of this project's own server, if it runs."""
    file = address_file(root)
    own = file.read_text(encoding="utf-8").strip() if file.exists() else ""
    return own if own and is_own(own, key) else None


def use(api: str, key: str) -> None:
    """Makes this process, and those it starts, speak with the server at this address, by the secret if it is ours."""
    os.environ["PREFECT_API_URL"] = api
    if is_own(api, key):
        os.environ[secret.VARIABLE] = key
    if "prefect" in sys.modules:
        importlib.import_module("prefect.context").refresh_global_settings_context()


def listens(api: str) -> bool:
    """Whether anyone takes connections at this address; who is slow does."""
    address = urllib.parse.urlsplit(api)
    try:
        port = address.port or {"https": 443}.get(address.scheme, 80)
        socket.create_connection((address.hostname, port), timeout=5).close()
    except ConnectionRefusedError:
        return False
    except OSError:
        return True
    return True


def end_without(api: str, patience: int) -> None:
    """Ends this process when nobody listens there for so many seconds: Prefect would ask for a minute at each step."""
    refused = 0
    while refused <= patience:
        time.sleep(1)
        refused = 0 if listens(api) else refused + 1
    sys.stderr.write(f"error: the server at {api} is gone; run again: finished stages are kept, others continue\n")
    sys.stderr.flush()
    # As where this process itself is killed: the guards hear of it, end the stages and let dvc record.
    os._exit(1)


def link(api: str, key: str, to: str = "/") -> str:
    """What to open in a browser: a link that works once at a server of ours, else the plain address."""
    pages = api.removesuffix("/api")
    if not is_own(api, key):
        return f"{pages}{to}"
    return f"{pages}{gate.ENTER}?ticket={secret.ticket(key)}" + (f"&to={urllib.parse.quote(to)}" if to != "/" else "")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(root: Path, port: int) -> tuple[subprocess.Popen[bytes], str]:
    """A server that ends with this process, and its API address, once it answers; ValueError if it does not start."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise ValueError(f"port {port} is taken: choose another (`polygrain ui --port 4201`)") from error
    home, key = private.own(root / ".prefect"), secret.of(root)
    tables.place(home)
    api = f"http://127.0.0.1:{port}/api"
    log = home / "server.log"
    environment = os.environ | {
        # The pages must call the server they come from; without the address they call port 4200, whoever is there.
        "PREFECT_SERVER_UI_API_URL": api,
        "PREFECT_API_URL": api,
        "PREFECT_SERVER_API_HOST": "127.0.0.1",
        "PREFECT_SERVER_API_PORT": str(port),
        "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": api.removesuffix("/api"),
        "PREFECT_SERVER_API_AUTH_STRING": key,
        secret.VARIABLE: key,
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    served = [sys.executable, "-m", "pipeline.gate", str(port)]
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, guard.__file__, str(os.getpid()), "0", *served],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        wait_for(process, lambda: is_own(api, key), log)
    except BaseException:
        process.terminate()
        raise
    os.environ[secret.VARIABLE] = key
    watch_for_silence(api)
    return process, api


def wait_for(process: subprocess.Popen[bytes], is_up: Callable[[], bool], log: Path) -> None:
    """Returns once the server is up. It says what it waits for; ValueError when the process has ended, or at last."""
    start = said = time.monotonic()
    while not is_up():
        now = time.monotonic()
        if (code := process.poll()) is not None or now - start > START_SECONDS:
            last = log.read_text(errors="replace").splitlines()[-5:]
            why = f"it ended with {code}" if code is not None else f"no answer in {START_SECONDS // 60} minutes"
            raise ValueError("\n".join([f"the Prefect server did not start, {why}; {log} ends with:", *last]))
        if now - said >= SECONDS_BETWEEN_WORDS:
            said = now
            load = f"load {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores"
            sys.stderr.write(f"Waiting for the Prefect server to answer, {now - start:.0f} s so far ({load}; {log})\n")
            sys.stderr.flush()
        time.sleep(0.1)


def watch_for_silence(api: str) -> None:
    """Asks the server, once, to mark runs as Crashed that sent no heartbeat for `SILENT_SECONDS`: a killed process
    cannot say so itself, and its run would stay Running for ever."""
    beat, run = "prefect.flow-run.heartbeat", "prefect.flow-run"
    automation = {
        "name": AUTOMATION,
        "trigger": {
            "type": "event",
            "posture": "Proactive",
            "after": [beat],
            "expect": [beat, *(f"{run}.{state}" for state in ("Completed", "Failed", "Cancelled", "Crashed"))],
            "match": {"prefect.resource.id": ["prefect.flow-run.*"]},
            "for_each": ["prefect.resource.id"],
            "threshold": 1,
            "within": SILENT_SECONDS,
        },
        "actions": [
            {
                "type": "change-flow-run-state",
                "state": "CRASHED",
                "message": f"no sign of life for {SILENT_SECONDS} s: the process was killed or its machine is gone",
            }
        ],
    }
    known = call(api, "/automations/filter", {})
    if AUTOMATION not in {item["name"] for item in known}:
        call(api, "/automations/", automation)


def call(api: str, path: str, body: dict | None = None) -> list | dict | str:
    """What the API answers, by the secret of this process's environment: to a POST of the body, or to a GET."""
    headers = {"Content-Type": "application/json"}
    if key := os.environ.get(secret.VARIABLE):
        headers["Authorization"] = f"Basic {secret.basic(key)}"
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(f"{api}{path}", data, headers), timeout=60) as reply:
        return json.load(reply)


def main(port: int = 4200) -> None:
    """Serves the pages until it is stopped, and ends the process; where they are served already, prints a new link."""
    guard.end_with_starter()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    root = project()
    if root is None:
        raise ValueError(f"{Path.cwd()} is in no DVC repository: change to the project's folder")
    key = secret.of(root)
    if running := find_own(root, key):
        sys.stdout.write(f"The server runs already. Open {link(running, key)}\n")
        return
    try:
        process, api = start(root, port)
        address_file(root).write_text(api + "\n", encoding="utf-8")
        sys.stdout.write(f"Watch runs at {link(api, key)}\n")
        sys.stdout.write("The link works once; `polygrain ui` in another terminal prints another. Ctrl-C ends this.\n")
        sys.stdout.flush()
        try:
            sys.exit(process.wait())
        finally:
            address_file(root).unlink(missing_ok=True)
            process.terminate()
            process.wait()
    except KeyboardInterrupt:
        sys.exit(0)
