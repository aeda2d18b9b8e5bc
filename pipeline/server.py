"""The Prefect server of this project: `python -m pipeline.server [--port 4200]`, or `make ui`.

It listens on 127.0.0.1 only, keeps its history in .prefect/, and marks runs that give no sign of life as Crashed.
"""

import argparse
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from pipeline import guard, project

START_SECONDS = 180
AUTOMATION = "crash silent runs"
SILENT_SECONDS = 90


def answers(api: str) -> bool:
    """Whether a Prefect server is at this address."""
    try:
        with urllib.request.urlopen(f"{api}/health", timeout=5) as reply:
            return reply.read().strip() == b"true"
    except (OSError, ValueError):
        return False


def address_file(root: Path) -> Path:
    return root / ".prefect" / "address"


def find(root: Path) -> str | None:
    """The API address of a server to use: that of PREFECT_API_URL, else this project's own if it runs, else None.

    ValueError if PREFECT_API_URL names one that does not answer.
    """
    named = os.environ.get("PREFECT_API_URL")
    if named:
        if not answers(named):
            raise ValueError(
                f"no Prefect server answers at PREFECT_API_URL={named}: start one with `make ui`, or unset "
                "PREFECT_API_URL to have one for this run alone"
            )
        return named
    file = address_file(root)
    own = file.read_text(encoding="utf-8").strip() if file.exists() else ""
    return own if own and answers(own) else None


def use(api: str) -> None:
    """Makes this process, and those it starts, speak with the server at this address."""
    os.environ["PREFECT_API_URL"] = api
    if "prefect" in sys.modules:
        importlib.import_module("prefect.context").refresh_global_settings_context()


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
            raise ValueError(f"port {port} is taken: choose another (`make ui PORT=4201`)") from error
    home = root / ".prefect"
    home.mkdir(exist_ok=True)
    api = f"http://127.0.0.1:{port}/api"
    log = home / "server.log"
    # The pages must call the server they come from; without the address they call port 4200, whoever is there.
    environment = os.environ | {"PREFECT_SERVER_UI_API_URL": api, "PREFECT_API_URL": api}
    prefect = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, guard.__file__, str(os.getpid()), "0", *prefect],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    deadline = time.monotonic() + START_SECONDS
    while not answers(api):
        if process.poll() is not None or time.monotonic() > deadline:
            process.terminate()
            last = log.read_text(errors="replace").splitlines()[-5:]
            raise ValueError("\n".join([f"the Prefect server did not start; {log} ends with:", *last]))
        time.sleep(0.1)
    watch_for_silence(api)
    return process, api


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


def call(api: str, path: str, body: dict) -> list | dict:
    request = urllib.request.Request(f"{api}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as reply:
        return json.load(reply)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m pipeline.server", description="The pages to watch runs on.")
    parser.add_argument("--port", type=int, default=4200)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    try:
        root = project()
        if root is None:
            raise ValueError(f"{Path.cwd()} is in no DVC repository: change to the project's folder")
        process, api = start(root, arguments.port)
        address_file(root).write_text(api + "\n", encoding="utf-8")
        sys.stdout.write(f"Watch runs at {api.removesuffix('/api')} (Ctrl-C ends the server)\n")
        sys.stdout.flush()
        try:
            sys.exit(process.wait())
        finally:
            address_file(root).unlink(missing_ok=True)
            process.terminate()
            process.wait()
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(0)


if __name__ == "__main__":
    main()
