"""Every stage, loaded once and forked for every run of one: `python -m pipeline.warm SOCKET ROOT`.

Python with torch, timm and faiss takes longer to start than most stages of a small graph take to work. So one process
loads them, and for each request of polygrain/runner/warm.py forks one that becomes the stage. It loads nothing until
it is first asked, forks nothing where a fresh start would give something else (other libraries, sources or variables
that libraries read when they are loaded), and ends, with all it forked, when its starter is gone.
"""

import importlib
import json
import os
import secrets
import selectors
import signal
import socket
import struct
import subprocess
import sys
import warnings
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pipeline import guard

# What polygrain/runner/warm.py says too, which nothing here may import: it belongs to the stages.
SOCKET, LENGTH, TAKEN, REFUSED = "POLYGRAIN_STAGES", struct.Struct("<I"), b"+", b"-"
REQUEST_SECONDS, SECONDS_TO_END = 10.0, 5.0
# Variables that no library reads when it is loaded: a stage may have others than the process it is forked from.
FREE = {"PATH", "PWD", "OLDPWD", "SHLVL", "_", "CUDA_VISIBLE_DEVICES"}
FREE_PREFIXES = ("DVC_", "POLYGRAIN_")
# What stages/run sets for every stage.
SET = {"HF_HUB_DISABLE_TELEMETRY": "1"}


class Warm:
    """The process that has the stages loaded, as its starter sees it.

    What is started with `environment` has its stages forked; it is empty where there are no stages, or no such sockets.
    """

    def __init__(self, root: Path) -> None:
        self.process, self.environment = None, {}
        if sys.platform != "linux" or not (root / "stages/run").is_file():
            return
        name = f"polygrain-{secrets.token_hex(16)}"
        # Listening before the process is there: whoever asks too early waits.
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(f"\0{name}")
            listener.listen()
            self.process = subprocess.Popen(
                [sys.executable, "-m", "pipeline.warm", str(listener.fileno()), str(root)],
                cwd=root,
                env=os.environ | SET | {"PYTHONPATH": str(root)},
                stdin=subprocess.PIPE,
                pass_fds=[listener.fileno()],
                start_new_session=True,
            )
        self.environment = {SOCKET: name}

    def close(self) -> None:
        """Ends it, and every stage that still runs."""
        if self.process is None:
            return
        # Nothing else holds this pipe.
        self.process.stdin.close()
        try:
            self.process.wait(SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@dataclass(frozen=True)
class Request:
    """A stage to become."""

    stage: str
    arguments: list[str]
    folder: str
    umask: int
    executable: str
    environment: dict[str, str]


class Loaded:
    """The stages of a root, once they are imported."""

    def __init__(self, root: Path) -> None:
        self._folder = root / "stages"
        self._environment = dict(os.environ)
        self._names = {path.stem for path in self._folder.glob("*.py")} - {"__init__"}
        for name in sorted(self._names):
            importlib.import_module(f"stages.{name}")
            # It is run as a program later, which would else be its second import.
            del sys.modules[f"stages.{name}"]
        self.added = {name: value for name, value in os.environ.items() if name not in self._environment}
        """Variables that libraries set for themselves when they are loaded."""
        self._sources = self._seen()

    def _seen(self) -> dict[Path, tuple[int, int]]:
        """When each source was last changed; a file that is gone raises FileNotFoundError."""
        files = [Path(module.__file__) for module in list(sys.modules.values()) if getattr(module, "__file__", None)]
        files = [file for file in files if file.is_relative_to(self._folder)]
        files += [self._folder / f"{name}.py" for name in self._names]
        return {file: ((state := file.stat()).st_mtime_ns, state.st_size) for file in files}

    def fits(self, request: Request) -> bool:
        """Whether a fork does what a fresh start would."""
        ours, theirs = self._environment, request.environment
        differing = {name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name)}
        with suppress(FileNotFoundError):
            return (
                request.stage in self._names
                and os.path.realpath(request.executable) == os.path.realpath(sys.executable)
                and all(name in FREE or name.startswith(FREE_PREFIXES) for name in differing)
                and self._seen() == self._sources
            )
        return False


def receive(connection: socket.socket) -> tuple[Request, list[int]]:
    """A request and the descriptors that came with it; OSError or ValueError where it is none."""
    connection.settimeout(REQUEST_SECONDS)
    _, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    if uid != os.getuid():
        raise PermissionError("another user's request")
    head, descriptors, _, _ = socket.recv_fds(connection, LENGTH.size, 3)
    try:
        if len(descriptors) != 3:
            raise ValueError("a request without its descriptors")
        (length,) = LENGTH.unpack(head)
        text = b""
        while len(text) < length:
            if not (part := connection.recv(length - len(text))):
                raise ConnectionError("a request that ends too early")
            text += part
        request = Request(*json.loads(text))
        connection.settimeout(None)
    except BaseException:
        close(descriptors)
        raise
    return request, descriptors


def close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


class Server:
    """The connections and the stages under way."""

    def __init__(self, listener: socket.socket, root: Path) -> None:
        self._listener = listener
        self._root, self._loaded, self._leaving = root, None, False
        self._stages: dict[socket.socket, int] = {}
        # None that the kernel shares with a fork, as epoll's is.
        self._selector = selectors.PollSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, "request")
        self._selector.register(0, selectors.EVENT_READ, "starter")
        signal.signal(signal.SIGTERM, self._leave)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def _leave(self, *_: object) -> None:
        """At once where nothing runs; else when the last stage has ended, which was asked to as well."""
        self._leaving = True
        if not self._stages:
            sys.exit(0)

    def serve(self) -> Request | None:
        """In a fork, what it is to become; in the server, None when its time is over."""
        while not (self._leaving and not self._stages):
            for key, _ in self._selector.select():
                if key.data == "starter":
                    for pid in self._stages.values():
                        end(pid, signal.SIGKILL)
                    return None
                if key.data == "request":
                    if (request := self._take()) is not None:
                        return request
                elif isinstance(key.data, socket.socket):
                    self._finish(key.fileobj, key.data)
                else:
                    self._hear(key.fileobj)
        return None

    def _take(self) -> Request | None:
        """Forks a stage for a request; in the fork, returns the request."""
        connection, _ = self._listener.accept()
        try:
            request, descriptors = receive(connection)
        except (OSError, ValueError, TypeError):
            connection.close()
            return None
        try:
            if self._loaded is None:
                self._loaded = Loaded(self._root)
            if fits := self._loaded.fits(request):
                pid = fork()
                if not pid:
                    self._become(request, connection, descriptors)
                    return request
                # Here too, for a signal that is quicker than the fork.
                with suppress(PermissionError):
                    os.setpgid(pid, pid)
                self._stages[connection] = pid
                self._selector.register(os.pidfd_open(pid), selectors.EVENT_READ, connection)
                self._selector.register(connection, selectors.EVENT_READ)
            # Whoever asked may be gone by now; the selector tells that in its turn.
            with suppress(OSError):
                connection.send(TAKEN if fits else REFUSED)
        except Exception:
            # A source that cannot be imported: the stage, started afresh, says so itself.
            fits = False
        finally:
            close(descriptors)
        if not fits:
            connection.close()
        return None

    def _become(self, request: Request, connection: socket.socket, descriptors: list[int]) -> None:
        """In a fork: has the requester's descriptors, folder and variables, and none of the server's."""
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        guard.kernel(guard.PR_SET_PDEATHSIG, signal.SIGKILL)
        # A group of its own, so that its workers end with it.
        os.setpgid(0, 0)
        open_here = [key.fileobj for key in self._selector.get_map().values()]
        for one in {self._listener, connection, *self._stages}:
            one.close()
        close([one for one in open_here if isinstance(one, int) and one])
        for target, descriptor in enumerate(descriptors):
            os.dup2(descriptor, target)
        os.umask(request.umask)
        os.chdir(request.folder)
        os.environ.clear()
        os.environ.update(self._loaded.added | request.environment)
        # What `ps` and `top` show; the command line stays that of the server.
        guard.kernel(guard.PR_SET_NAME, request.stage.encode()[:15])

    def _hear(self, connection: socket.socket) -> None:
        """A signal for the stage, or the end of whoever asked for it."""
        try:
            numbers = connection.recv(16)
        except OSError:
            numbers = b""
        if not numbers:
            self._selector.unregister(connection)
        for number in numbers or [signal.SIGKILL]:
            end(self._stages[connection], number)

    def _finish(self, descriptor: int, connection: socket.socket) -> None:
        """Tells the exit code; what the stage has left of its own ends too."""
        self._selector.unregister(descriptor)
        os.close(descriptor)
        pid = self._stages.pop(connection)
        # Before its number is free for another.
        end(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        with suppress(KeyError):
            self._selector.unregister(connection)
        with connection, suppress(OSError):
            connection.send(b"%d" % os.waitstatus_to_exitcode(status))


def end(stage: int, number: int) -> None:
    """A signal to a stage and what it has started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(stage, number)


def fork() -> int:
    """os.fork, which warns where threads run: those of the libraries' pools, whose libraries mend them in a fork."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def main(descriptor: str, root: str) -> None:
    listener = socket.socket(fileno=int(descriptor))
    request = Server(listener, Path(root)).serve()
    if request is not None:
        import runpy

        sys.path[0] = request.folder
        sys.argv = [request.stage, *request.arguments]
        runpy.run_module(f"stages.{request.stage}", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
