"""dvc, loaded once and forked for every call: `python -m pipeline.forks SOCKET FOLDER`.

Loading dvc costs ten times what it then spends on a small stage, and a flow calls it once per stage. So one process
loads it, and for each request on the socket (a descriptor its starter has passed on) forks a guard (pipeline/guard.py),
which forks dvc. It ends when its starter's end of the socket closes, however that came about.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from threading import Lock, Thread
from typing import NoReturn

import psutil

from pipeline import guard, project
from pipeline.warm import Warm

# The flag waits for the repository's lock; without it, a stage that ends while another hashes is lost after 3 seconds.
DVC = [sys.executable, "-m", "dvc", "--wait-for-lock"]
SIZE_BYTES, MOST_DESCRIPTORS = 4, 64
SECONDS_TO_END = 5.0
GONE = "the process that starts the stages is gone; start the run again"


class Call:
    """One call under way: the lines it writes, its exit code, and a way to end it with all that it started."""

    def __init__(self, output: int, channel: socket.socket) -> None:
        self.lines = os.fdopen(output, encoding="utf-8", errors="replace")
        self._channel, self._code = channel, None
        self._hearing = Thread(target=self._hear, daemon=True)
        self._hearing.start()

    def _hear(self) -> None:
        """Takes the guard's process id, then the exit code. A guard that was killed sends none: its session follows.

        At once, and not when the lines end, because what it left behind holds them open.
        """
        heard = b""
        # The connection is reset where the guard ended before it had read a wish to stop; what it sent comes first.
        with suppress(ConnectionResetError):
            while part := self._channel.recv(64):
                heard += part
        session, code = [*map(int, heard.split()), None, None][:2]
        if session is not None and code is None:
            code = 128 + signal.SIGKILL
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(session, signal.SIGKILL)
        self._code = code

    def ask_to_stop(self) -> None:
        """Without effect where it has ended."""
        with suppress(OSError):
            self._channel.send(b".")

    def stop(self) -> None:
        """Returns when it has ended; what it still has to say is dropped, but read: dvc records nothing unheard."""
        self.ask_to_stop()
        for _ in self.lines:
            pass
        self.close()

    def wait(self) -> int:
        """Its exit code, once it has ended; 137 if the guard was killed."""
        self._hearing.join()
        if self._code is None:
            raise ChildProcessError(GONE)
        return self._code

    def close(self) -> None:
        """After its end."""
        self._hearing.join()
        self.lines.close()
        self._channel.close()


class Forks:
    """The process that has dvc loaded, as its starter sees it."""

    def __init__(self, folder: Path) -> None:
        self._lock = Lock()
        self._socket, other = socket.socketpair()
        self._stages = Warm(project(folder) or folder)
        with other:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "pipeline.forks", str(other.fileno()), str(folder.resolve())],
                cwd=Path(__file__).parents[1],
                env=os.environ | {"PYTHONUNBUFFERED": "1"} | self._stages.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[other.fileno()],
                start_new_session=True,
            )

    def start(self, command: list[str], folder: Path, environment: dict[str, str], held: list[int]) -> Call:
        """Starts a command (dvc by a fork) in the folder; it holds the given descriptors for as long as it runs."""
        ours, channel = socket.socketpair()
        output, written = os.pipe()
        call = Call(output, ours)
        request = json.dumps([command, str(folder.resolve()), environment]).encode()
        try:
            with channel, os.fdopen(written, "wb"), self._lock:
                size = len(request).to_bytes(SIZE_BYTES, "little")
                socket.send_fds(self._socket, [size], [channel.fileno(), written, *held])
                self._socket.sendall(request)
        except (BrokenPipeError, ConnectionResetError) as error:
            call.close()
            raise ChildProcessError(GONE) from error
        return call

    def close(self) -> None:
        """Ends the process; calls under way should have been stopped."""
        self._socket.close()
        try:
            self._process.wait(SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._stages.close()


class Forked(psutil.Process):
    """A child of this process that was forked, with what `guard.main` uses of `psutil.Popen`."""

    returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode


def leave(code: int) -> NoReturn:
    """Ends a fork."""
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def call_dvc(arguments: list[str]) -> int:
    """dvc's exit code, whatever becomes of it."""
    from dvc.cli import main as dvc

    sys.argv = ["dvc", *arguments]
    try:
        return dvc(arguments)
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1


def fork_dvc(arguments: list[str]) -> Forked:
    """dvc as a child of this process, without its start."""
    if pid := os.fork():
        return Forked(pid)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    guard.kernel(guard.PR_SET_PDEATHSIG, signal.SIGKILL)
    # What `ps` and `top` show; the command line stays that of the process it was forked from.
    guard.kernel(guard.PR_SET_NAME, b"dvc")
    leave(call_dvc(arguments))


def guard_call(request: bytes, descriptors: list[int]) -> None:
    """In a fresh fork: becomes the guard of one call, and reports on the channel."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    channel, held = socket.socket(fileno=descriptors[0]), descriptors[2:]
    channel.send(b"%d\n" % os.getpid())
    for target in (1, 2):
        os.dup2(descriptors[1], target)
    os.close(descriptors[1])
    channel.setblocking(False)

    def stopped() -> bool:
        """Whether the starter asks for the end, or is gone; both make the channel readable."""
        try:
            channel.recv(1)
        except BlockingIOError:
            return False
        except OSError:
            # A starter that dies before it has read the line above resets the connection.
            return True
        return True

    try:
        command, folder, environment = json.loads(request)
        os.chdir(folder)
        os.environ.update(environment)
        is_dvc = command[: len(DVC) - 1] == DVC[:-1]
        start = (lambda: fork_dvc(command[len(DVC) - 1 :])) if is_dvc else (lambda: guard.popen(command))
        code = guard.main(start, guard.RECORD_SECONDS, stopped)
    except BaseException:
        traceback.print_exc()
        code = 1
    # Whoever hears that the call has ended finds its slots free.
    for descriptor in held:
        os.close(descriptor)
    channel.setblocking(True)
    with suppress(OSError):
        channel.send(b"%d\n" % code)


def load() -> None:
    """Imports what dvc imports when it is first used, by the least it can be asked."""
    import dvc.cli  # noqa: F401  (whose failure is to be seen)

    standard_error = os.dup(2)
    # What is wrong with the graph is for the call that was asked for to say.
    os.dup2(1, 2)
    call_dvc(["stage", "list", "--name-only"])
    os.dup2(standard_error, 2)
    os.close(standard_error)


def serve(requests: socket.socket) -> None:
    """A fork per request, until the other end closes. The kernel takes the exit codes; nobody else would."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        size, descriptors, _, _ = socket.recv_fds(requests, SIZE_BYTES, MOST_DESCRIPTORS)
        if not size:
            return
        request = requests.recv(int.from_bytes(size, "little"), socket.MSG_WAITALL)
        if not os.fork():
            requests.close()
            try:
                guard_call(request, descriptors)
            finally:
                # Also where the starter is gone already: a fork must not return into what it was forked from.
                leave(0)
        for descriptor in descriptors:
            os.close(descriptor)


if __name__ == "__main__":
    _, descriptor, graph = sys.argv
    os.chdir(graph)
    load()
    serve(socket.socket(fileno=int(descriptor)))
