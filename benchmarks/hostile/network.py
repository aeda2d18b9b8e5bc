"""Everything without a network: in a namespace that has a loopback and nothing else, where every attempt is counted.

An attempt is a connect or a datagram to an address that is not this machine's own, a name server's included.
"""

import fcntl
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from benchmarks.hostile.outcome import Outcome
from pipeline import server
from tests.helpers.browser import CHROMIUM, browse
from tests.helpers.project import new_project
from tests.pipeline import dying, toy

SECONDS = 1800
GET_FLAGS, SET_FLAGS, UP = 0x8913, 0x8914, 0x1
# As root without a user namespace: a file's owner stays who it is.
ALONE = ["unshare", "--net"] if os.getuid() == 0 else ["unshare", "--map-root-user", "--net"]
ADDRESS = re.compile(r'inet_addr\("([^"]+)"\)|inet_pton\(AF_INET6, "([^"]+)"')
NEAR = re.compile(r"127\.|0\.0\.0\.0$|::1?$|::ffff:127\.")


def run(count: int, seed: int, folder: Path) -> Iterator[Outcome]:
    """So many of the cases, in order: none of them is drawn."""
    for name, case in list(CASES.items())[:count]:
        (folder / name).mkdir()
        yield case(name, folder / name)


def loopback() -> None:
    """Brings up `lo`, which a new namespace has down."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        request = struct.pack("16sh14x", b"lo", 0)
        (flags,) = struct.unpack("16xh14x", fcntl.ioctl(asked, GET_FLAGS, request))
        fcntl.ioctl(asked, SET_FLAGS, struct.pack("16sh14x", b"lo", flags | UP))


def alone(command: list[str], folder: Path, trace: Path | None, **environment: str) -> tuple[int, str]:
    """Exit code and words of a command that has no network; every connection it tries is noted in `trace`, if given."""
    program = "import sys; from benchmarks.hostile import network; network.enter(sys.argv[1], sys.argv[2:])"
    done = subprocess.run(
        [*ALONE, sys.executable, "-c", program, str(trace or ""), *command],
        cwd=folder,
        env=toy.ENVIRONMENT | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
    )
    return done.returncode, done.stdout


def enter(trace: str, command: list[str]) -> None:
    """Becomes the command, without a network."""
    loopback()
    command = traced(Path(trace), command) if trace else command
    os.execvp(command[0], command)


def traced(trace: Path, command: list[str]) -> list[str]:
    """The command under strace where that is installed; without it, that nothing is there must do."""
    if shutil.which("strace") is None:
        return command
    return ["strace", "-f", "-qq", "-e", "trace=connect,sendto,sendmsg,sendmmsg", "-o", str(trace), *command]


def outside(trace: Path) -> list[str]:
    """The addresses that were tried and are not this machine's own."""
    lines = trace.read_text(errors="replace").splitlines() if trace.exists() else []
    met = [one or other for line in lines for one, other in ADDRESS.findall(line)]
    return [address for address in met if not NEAR.match(address)]


def judged(name: str, code: int, said: str, trace: Path, is_right: bool) -> Outcome:
    if tried := outside(trace):
        return Outcome(name, "escape", f"{len(tried)} attempts: {sorted(set(tried))[:5]}")
    if code or not is_right:
        return Outcome(name, "raw", f"ended with {code}: {said[-600:]}")
    return Outcome(name, "fine")


def on_toy(target: str, folder: Path) -> Outcome:
    clone = dying.make(folder / "clone", seconds=0.05)
    code, said = alone(dying.make_command(clone, target), clone, folder / "trace")
    found = {name: content.decode() for name, content in toy.texts(clone).items()}
    return judged(f"make {target}", code, said, folder / "trace", found == dying.expected())


def ui(name: str, folder: Path) -> Outcome:
    """The server of `polygrain ui`, and its pages in a browser, of which only what a page asks for is counted."""
    clone = toy.make(folder / "clone")
    program = "import sys; from benchmarks.hostile import network; network.look(*sys.argv[1:])"
    code, said = alone([sys.executable, "-c", program, str(folder)], clone, None)
    asked = [url for url in said.splitlines() if url.startswith("asks: ")]
    if asked:
        return Outcome("polygrain ui", "escape", f"its pages asked for {asked[:5]}")
    return judged("polygrain ui", code, said, folder / "trace", CHROMIUM is None or "Dashboard" in said)


def look(folder: str) -> None:
    """Prints what a browser shows of the pages, and each address outside that they had it ask for."""
    command = [sys.executable, "-m", "polygrain", "ui", "--port", str(server.free_port())]
    log = Path(folder) / "net.json"
    with subprocess.Popen(traced(Path(folder) / "trace", command), stdout=subprocess.PIPE, text=True) as process:
        link = process.stdout.readline().split()[-1]
        if CHROMIUM:
            sys.stdout.write(browse(link, f"--user-data-dir={folder}/browser", "--dump-dom", f"--log-net-log={log}"))
            pairs = re.findall(r'"initiator":"http://127[^}]*?"url":"([^"]+)"', log.read_text(errors="replace"))
            away = [
                url for url in pairs if not url.startswith((link.split("/enter")[0], "data:", "blob:", "ws://127."))
            ]
            sys.stdout.writelines(f"\nasks: {url}" for url in away)
        for one in psutil.Process(process.pid).children(recursive=True) or [process]:
            if one.cmdline()[2:4] == ["polygrain", "ui"]:
                one.terminate()


def graph(name: str, folder: Path) -> Outcome:
    """The project's own graph, every stage, on a few drawn images."""
    clone = new_project(folder / "clone")
    code, said = alone(["dvc", "repro"], clone, folder / "trace")
    return judged("dvc repro, all stages", code, said, folder / "trace", (clone / "data/report/index.html").exists())


def docs(name: str, folder: Path) -> Outcome:
    clone = folder / "clone"
    toy.run(folder, "git", "clone", "-q", str(toy.ROOT), "clone")
    command = [sys.executable, "-m", "sphinx", "-E", "-W", "-q", "-b", "html", "docs", "docs/_build/html"]
    code, said = alone(command, clone, folder / "trace", PYTHONPATH=str(clone))
    return judged("make docs", code, said, folder / "trace", (clone / "docs/_build/html/index.html").exists())


CASES: dict[str, Callable[[str, Path], Outcome]] = {
    "repro": on_toy,
    "flow": on_toy,
    "ui": ui,
    "docs": docs,
    "graph": graph,
}
COUNT = len(CASES)
