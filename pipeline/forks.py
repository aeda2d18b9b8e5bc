"""dvc, loaded once and forked for every call: `python -m pipeline.forks SOCKET FOLDER`.

Loading dvc costs ten times what it then spends on a small stage, and a flow calls it once per stage. So one process
loads it, and for each request on the socket (a descriptor its starter has passed on) forks a guard (pipeline/guard.py),
which forks dvc. It ends when its starter's end of the socket closes, however that came about.
"""

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import NoReturn

import psutil

from pipeline import guard

# The flag waits for the repository's lock; without it, a stage that ends while another hashes is lost after 3 seconds.
DVC = [sys.executable, "-m", "dvc", "--wait-for-lock"]
SIZE_BYTES, MOST_DESCRIPTORS = 4, 64
PR_SET_NAME = 15
GONE = "the process that starts the stages is gone; start the run again"


class Call:
    """One call under way: the lines it writes, its exit code, and a way to end it with all that it started."""

    def __init__(self, output: int, channel: socket.socket) -> None:
        self.lines = os.fdopen(output, encoding="utf-8", errors="replace")
        self._channel = channel

    def ask_to_stop(self) -> None:
        """Without effect where it has ended."""
        with suppress(OSError):
            self._channel.send(b".")

    def stop(self) -> None:
        """Returns when it has ended; what it still has to say is dropped."""
        self.ask_to_stop()
        self.lines.close()
        self.wait()
        self.close()

    def wait(self) -> int:
        """Its exit code, once it has ended; 137 if the guard was killed, whose session is then killed too."""
        with self._channel.makefile() as lines:
            session, code = [*map(int, lines), None, None][:2]
        if session is None:
            raise ChildProcessError(GONE)
        if code is not None:
            return code
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(session, signal.SIGKILL)
        return 128 + signal.SIGKILL

    def close(self) -> None:
        self.lines.close()
        self._channel.close()


class Forks:
    """The process that has dvc loaded, as its starter sees it."""

    def __init__(self, folder: Path) -> None:
        self._lock = Lock()
        self._socket, other = socket.socketpair()
        with other:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "pipeline.forks", str(other.fileno()), str(folder.resolve())],
                cwd=Path(__file__).parents[1],
                env=os.environ | {"PYTHONUNBUFFERED": "1"},
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
        with channel, os.fdopen(written, "wb"), self._lock:
            try:
                size = len(request).to_bytes(SIZE_BYTES, "little")
                socket.send_fds(self._socket, [size], [channel.fileno(), written, *held])
                self._socket.sendall(request)
            except OSError as error:
                call.close()
                raise ChildProcessError(GONE) from error
        return call

    def close(self) -> None:
        """Ends the process; calls under way should have been stopped."""
        self._socket.close()
        self._process.wait()


class Forked(psutil.Process):
    """A child of this process that was forked, with what `guard.main` uses of `psutil.Popen`."""

    returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode


def leave(code: int) -> NoReturn:
    """Ends a fork, which must not return into what it was forked from."""
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
        return error.code if isinstance(error.code, int) else 1
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
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_NAME, b"dvc", 0, 0, 0)
    leave(call_dvc(arguments))


def run(request: bytes, descriptors: list[int]) -> None:
    """In a fresh fork: becomes the guard of one call, and reports on the channel."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    channel = socket.socket(fileno=descriptors[0])
    channel.send(b"%d\n" % os.getpid())
    for target in (1, 2):
        os.dup2(descriptors[1], target)
    os.close(descriptors[1])
    command, folder, environment = json.loads(request)
    os.chdir(folder)
    os.environ.update(environment)
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

    fork = command[: len(DVC) - 1] == DVC[:-1]
    start = (lambda: fork_dvc(command[len(DVC) - 1 :])) if fork else (lambda: guard.popen(command))
    try:
        code = guard.main(start, guard.RECORD_SECONDS, stopped)
    except BaseException:
        traceback.print_exc()
        code = 1
    # Whoever hears that the call has ended finds its slots free.
    for held in descriptors[2:]:
        os.close(held)
    channel.setblocking(True)
    with suppress(OSError):
        channel.send(b"%d\n" % code)


def load() -> None:
    """Imports what dvc imports when it is first used, by the least it can be asked."""
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
            run(request, descriptors)
            leave(0)
        for descriptor in descriptors:
            os.close(descriptor)


if __name__ == "__main__":
    _, descriptor, graph = sys.argv
    os.chdir(graph)
    load()
    serve(socket.socket(fileno=int(descriptor)))
