"""Every stage loaded once, and forked for each run of one.

Python with torch, timm and faiss takes longer to start than most stages of a small graph take to work. So `stages/run`
calls `python -IS stage_server.py STAGE ARGUMENTS...`, which hands its arguments, folder, variables and descriptors to
a server. For each request the server forks a handler, and that the stage. Where no server answers, or a fork would be
another program than a fresh start, the client becomes that fresh start.
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

ROOT = Path(__file__).resolve().parents[1]
SOCKET = "POLYGRAIN_STAGES"
"""Names the socket to the clients."""
MOST_BYTES = 1 << 20
# What libraries read when they are loaded; CUDA_VISIBLE_DEVICES is read later.
READ = ("OMP_", "MKL_", "OPENBLAS_", "CUDA_", "PYTHON", "HF_", "TORCH_", "POLYGRAIN_", "LD_")
FREE = ("CUDA_VISIBLE_DEVICES", "PYTHONPATH", SOCKET)


@contextmanager
def serving(root: Path) -> Iterator[dict[str, str]]:
    """A server that ends with the block, and the variables by which stages find it; none where `root` has no stages."""
    if sys.platform != "linux" or not (root / "stages/run").is_file():
        yield {}
        return
    import tempfile

    from pipeline import process_group

    kind = socket.AF_UNIX, socket.SOCK_SEQPACKET
    with tempfile.TemporaryDirectory(prefix="polygrain-") as folder, socket.socket(*kind) as listener:
        listener.bind(f"{folder}/stages")
        listener.listen(64)
        # As stages/run has them.
        environment = {"PYTHONPATH": str(root), "HF_HUB_DISABLE_TELEMETRY": "1"}
        command = [sys.executable, "-m", "pipeline.stage_server", "serve", str(listener.fileno())]
        process = process_group.start(command, root, environment, pass_fds=[listener.fileno()])
        try:
            yield {SOCKET: f"{folder}/stages"}
        finally:
            process_group.end(process, 0)


def state(environment: dict[str, str]) -> dict[str, object]:
    """What a fork and a fresh start must agree in: variables that libraries read, Python, and the sources."""
    files = [*(ROOT / "stages").glob("*.py"), *(ROOT / "polygrain").rglob("*.py")]
    return {
        "variables": {name: text for name, text in environment.items() if name.startswith(READ) and name not in FREE},
        "python": os.path.dirname(sys.executable),
        "sources": zlib.crc32(repr(sorted((str(file), file.stat().st_mtime_ns) for file in files)).encode()),
    }


def serve(listener: socket.socket) -> None:
    """Answers until it is killed; in the fork that is a stage, runs it."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    loaded = None
    while True:
        connection, _ = listener.accept()
        if loaded is None:
            loaded = load()
        if not fork():
            listener.close()
            handle(connection, loaded)
            return
        connection.close()


def load() -> dict[str, object]:
    """Imports every stage; the state that they were loaded in."""
    import importlib

    loaded = state(dict(os.environ))
    for file in sorted((ROOT / "stages").glob("[a-z]*.py")):
        importlib.import_module(f"stages.{file.stem}")
        # It is run as a program later, which would else be its second import.
        del sys.modules[f"stages.{file.stem}"]
    return loaded


def fork() -> int:
    """os.fork; the child ends with its parent, and takes signals as any program does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the libraries' idle threads
        child = os.fork()
    if not child:
        from pipeline import process_group

        process_group.end_with_parent()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    return child


def handle(connection: socket.socket, loaded: dict[str, object]) -> None:
    """Forks the stage that is asked for; tells its exit code, and ends it when whoever asked is gone."""
    data, descriptors, _, _ = socket.recv_fds(connection, MOST_BYTES, 3)
    stage, arguments, folder, asked = json.loads(data)
    environment = asked.pop("environment")
    if asked != loaded:
        os._exit(0)
    connection.send(b"+")
    if not (child := fork()):
        connection.close()
        become(stage, arguments, folder, environment, descriptors)
        return
    with suppress(PermissionError):
        os.setpgid(child, child)  # here, too: a signal may be quicker than the fork
    ended = os.pidfd_open(child)
    while ended not in select.select([connection, ended], [], [])[0]:
        # A byte is a signal to hand on; nothing at all means that the client is gone.
        number = connection.recv(1)
        with suppress(ProcessLookupError):
            os.killpg(child, number[0] if number else signal.SIGKILL)
        if not number:
            break
    _, status = os.waitpid(child, 0)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    with suppress(OSError):
        connection.send(b"%d" % os.waitstatus_to_exitcode(status))
    os._exit(0)


def become(stage: str, arguments: list[str], folder: str, environment: dict[str, str], descriptors: list[int]) -> None:
    """Runs the stage in this process, as if the client had."""
    import runpy

    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for target, descriptor in enumerate(descriptors):
        os.dup2(descriptor, target)
        os.close(descriptor)
    os.chdir(folder)
    added = {name: text for name, text in os.environ.items() if name not in environment and name.startswith(READ)}
    os.environ.clear()
    os.environ.update(added | environment)
    sys.path[0], sys.argv = folder, [stage, *arguments]
    runpy.run_module(f"stages.{stage}", run_name="__main__", alter_sys=True)


def ask(address: str, stage: str, arguments: list[str]) -> int | None:
    """The exit code of a stage that the server has forked; None where it has not."""
    environment = dict(os.environ)
    request = [stage, arguments, os.getcwd(), state(environment) | {"environment": environment}]
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        try:
            server.connect(address)
            socket.send_fds(server, [json.dumps(request).encode()], [0, 1, 2])
            if server.recv(1) != b"+":
                return None
        except OSError:
            return None
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda number, _: server.send(bytes([number])))
        try:
            code = int(server.recv(16) or -signal.SIGKILL)
        except ConnectionResetError:  # a signal came too late to be read; the code comes after this error
            code = int(server.recv(16) or -signal.SIGKILL)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(socket.socket(fileno=int(sys.argv[2])))
    else:
        if (answer := ask(os.environ[SOCKET], sys.argv[1], sys.argv[2:])) is not None:
            os._exit(answer)
        os.execvp("python", ["python", "-m", f"stages.{sys.argv[1]}", *sys.argv[2:]])
