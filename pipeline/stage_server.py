"""Every stage loaded once, and forked for each run of one.

Python with torch, timm and faiss takes longer to start than most stages of a small graph take to work. So `stages/run`
calls `python -IS stage_server.py STAGE ARGUMENTS...`, which hands its arguments, folder, variables and descriptors to
a server. For each request the server forks a handler, and that the stage. The client starts the stage itself where no
server answers, or where sources or variables are not those that the server has loaded.
"""

import json
import os
import select
import signal
import socket
import sys
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SOCKET = "POLYGRAIN_STAGES"
"""Names the socket to the clients."""
KIND = socket.AF_UNIX, socket.SOCK_SEQPACKET
MOST_BYTES = 1 << 20
# Variables that libraries read when they are loaded; CUDA_VISIBLE_DEVICES is read later.
READ = ("OMP_", "GOMP_", "MKL_", "OPENBLAS_", "CUDA_", "PYTHON", "HF_", "TORCH_", "POLYGRAIN_", "LD_")
FREE = ("CUDA_VISIBLE_DEVICES", "PYTHONPATH", "POLYGRAIN_FINISHED", SOCKET)


@contextmanager
def serving(root: Path, jobs: int = 1) -> Iterator[dict[str, str]]:
    """A server that ends with the block; the variables by which stages find it, and run `jobs` at once.

    Without a server where `root` has no stages.
    """
    import tempfile

    from pipeline import process_group
    from polygrain.runner import threads

    shared = threads.variables(jobs)
    if sys.platform != "linux" or not (root / "stages/run").is_file():
        yield shared
        return
    with tempfile.TemporaryDirectory(prefix="polygrain-") as folder, socket.socket(*KIND) as listener:
        listener.bind(f"{folder}/stages")
        listener.listen(64)
        # As stages/run has them.
        environment = {"PYTHONPATH": str(root), "HF_HUB_DISABLE_TELEMETRY": "1", **shared}
        command = [sys.executable, "-m", "pipeline.stage_server", "serve", str(listener.fileno())]
        process = process_group.start(command, root, environment, pass_fds=[listener.fileno()])
        listener.close()  # held here, it would take the requests of stages after the server has died
        try:
            yield {SOCKET: f"{folder}/stages", **shared}
        finally:
            process_group.end(process, 0)


def state(environment: dict[str, str]) -> tuple[dict[str, str], int]:
    """The state that a fork and a fresh start must share: the variables of libraries, and a checksum of the sources."""
    files = [*(ROOT / "stages").glob("*.py"), *(ROOT / "polygrain").rglob("*.py")]
    sources = repr(sorted((str(file), file.stat().st_mtime_ns) for file in files))
    variables = {name: text for name, text in environment.items() if name.startswith(READ) and name not in FREE}
    return variables, zlib.crc32(sources.encode())


def serve(listener: socket.socket) -> None:
    """Answers until it is killed; in the fork that is a stage, runs it."""
    warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)  # idle ones of libraries
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    loaded = load()  # while DVC reads the graph
    while True:
        connection, _ = listener.accept()
        if not fork():
            listener.close()
            handle(connection, loaded)
            return
        connection.close()


def load() -> tuple[dict[str, str], int]:
    """Imports every stage, and what most of them import late; the state that they were loaded in."""
    import importlib

    loaded = state(dict(os.environ))
    print("loading the stages ...", flush=True)
    for file in sorted((ROOT / "stages").glob("[a-z]*.py")):
        importlib.import_module(f"stages.{file.stem}")
        # It is run as a program later, which would else be its second import.
        del sys.modules[f"stages.{file.stem}"]
    if "torch" in sys.modules:
        importlib.import_module("timm")  # three seconds of each stage that loads a network
    return loaded


def fork() -> int:
    """os.fork; the child ends with its parent."""
    child = os.fork()
    if not child:
        from pipeline import process_group

        process_group.end_with_parent()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    return child


def handle(connection: socket.socket, loaded: tuple[dict[str, str], int]) -> None:
    """Forks the stage that is asked for and tells its exit code; ends it when the client is gone."""
    data, descriptors, _, _ = socket.recv_fds(connection, MOST_BYTES, 3)
    stage, arguments, folder, environment = json.loads(data)
    if state(environment) != loaded:
        os._exit(0)
    connection.send(b"+")
    os.setpgid(0, 0)
    if not (child := fork()):
        connection.close()
        become(stage, arguments, folder, environment, descriptors)
        return
    # The client writes nothing more: it can be read from once it is gone.
    ended = os.pidfd_open(child)
    either: list[Any] = [connection, ended]
    if ended in select.select(either, [], [])[0]:
        _, status = os.waitpid(child, 0)
        with suppress(OSError):
            connection.send(b"%d" % os.waitstatus_to_exitcode(status))
    os.killpg(0, signal.SIGKILL)  # the stage and all that it has started


def become(stage: str, arguments: list[str], folder: str, environment: dict[str, str], descriptors: list[int]) -> None:
    """Runs the stage in this process, as if the client had."""
    import runpy

    for target, descriptor in enumerate(descriptors):
        os.dup2(descriptor, target)
        os.close(descriptor)
    os.chdir(folder)
    os.environ.update(environment)
    sys.path[0], sys.argv = folder, [stage, *arguments]
    runpy.run_module(f"stages.{stage}", run_name="__main__", alter_sys=True)


def ask(address: str, stage: str, arguments: list[str]) -> int | None:
    """The exit code of a stage that the server has forked; None where it has not."""
    request = json.dumps([stage, arguments, os.getcwd(), dict(os.environ)]).encode()
    with socket.socket(*KIND) as server:
        try:
            server.connect(address)
            socket.send_fds(server, [request], [0, 1, 2])
            if server.recv(1) != b"+":
                return None
        except OSError:
            return None
        code = int(server.recv(16) or -signal.SIGKILL)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(socket.socket(fileno=int(sys.argv[2])))
    else:
        if (answer := ask(os.environ[SOCKET], sys.argv[1], sys.argv[2:])) is not None:
            os._exit(answer)
        os.execvp("python", ["python", "-m", f"stages.{sys.argv[1]}", *sys.argv[2:]])
