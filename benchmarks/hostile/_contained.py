"""A piece of work in a process of its own, with limits, and watched: what it opened, moved, or asked of the network."""

import json
import os
import resource
import select
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

# Names of Python's audit events that nothing which only reads may raise.
FORBIDDEN = (
    "socket.connect",
    "socket.getaddrinfo",
    "socket.sendto",
    "urllib.Request",
    "subprocess.Popen",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.fork",
    "pickle.find_class",
)
WRITTEN = (
    "os.remove",
    "os.rename",
    "os.mkdir",
    "os.rmdir",
    "os.link",
    "os.symlink",
    "os.chmod",
    "os.truncate",
    "shutil.rmtree",
)
INSTALLED = tuple(os.path.realpath(path) for path in {sys.prefix, sys.base_prefix, *sys.path} if path)


class Ended(NamedTuple):
    """`done`, `killed`, or the name of an error's class with what it said; and what it did that it may not."""

    kind: str
    said: str
    seconds: float
    escapes: list[str]


def contained(work: Callable[[], object], *own: Path, seconds: float = 30, memory: int = 2**30) -> Ended:
    """Forked, so that all that is imported here is there at once. `own` are the folders whose files it may open."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        ended = watched(work, own, seconds, memory)
        with open(writing, "w", encoding="utf-8") as stream:
            json.dump(ended, stream)
        os._exit(0)
    os.close(writing)
    try:
        with open(reading, encoding="utf-8") as stream:
            # The limit is of the processor's time; a busy machine may need several times as long.
            ready = select.select([stream], [], [], 3 * seconds)[0]
            text = stream.read() if ready else ""
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return Ended(*json.loads(text)) if text else Ended("killed", f"no end within {seconds} s", seconds, [])


def watched(work: Callable[[], object], own: tuple[Path, ...], seconds: float, memory: int) -> Ended:
    """In the child."""
    escapes: list[str] = []
    home = tuple(os.path.realpath(path) for path in own)

    def look(event: str, arguments: tuple) -> None:
        if event in WRITTEN:
            moved = [
                os.path.realpath(os.fsdecode(path)) for path in arguments if isinstance(path, str | bytes | os.PathLike)
            ]
            escapes.extend(f"{event} {path}" for path in moved if not path.startswith(home))
        elif event.startswith(FORBIDDEN) or (event == "import" and arguments[0] == "pickle"):
            escapes.append(f"{event} {arguments}"[:300])
        elif event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
            path = os.path.realpath(os.fsdecode(arguments[0]))
            if not path.startswith((*home, *INSTALLED)):
                escapes.append(f"open {path}")

    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 1))
    held = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (held + memory, held + memory))
    sys.addaudithook(look)
    before = sum(os.times()[:2])
    try:
        work()
        kind, said = "done", ""
    except BaseException as error:
        kind, said = type(error).__name__, str(error)
    return Ended(kind, said[:2000], sum(os.times()[:2]) - before, escapes)
