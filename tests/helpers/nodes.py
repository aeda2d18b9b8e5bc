"""Two machines of a test: network namespaces of this one, joined by a cable, each with a tree of files of its own.

Where the system allows no namespaces, both stand on the loopback device, and only their trees are apart.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from s3fs import S3FileSystem

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Node:
    """One of two machines. What it runs begins with `prefix`; the first one listens at `address`."""

    number: int
    prefix: tuple[str, ...]
    address: str
    device: str

    def start(self, folder: Path, *program: str | Path, processes: int = 2, patience: int = 60) -> subprocess.Popen:
        """This machine's part of a stage's module or a program that both share, begun in the folder."""
        options = f"--nnodes 2 --node-rank {self.number} --nproc-per-node {processes} --master-addr {self.address}"
        environment = os.environ | {
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(ROOT),
            "GLOO_SOCKET_IFNAME": self.device,
            "TORCH_CPP_LOG_LEVEL": "FATAL",
            "POLYGRAIN_PATIENCE": str(patience),
            "POLYGRAIN_TORCHRUN": f"{options} --master-port {20_000 + os.getpid() % 10_000}",
        }
        command = [*self.prefix, sys.executable, "-m", "polygrain.runner.several", *program]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.Popen(command, cwd=folder, env=environment, start_new_session=True, **pipes)


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@contextmanager
def two_nodes() -> Iterator[tuple[Node, Node]]:
    names = [f"polygrain-{os.getpid()}-{number}" for number in (0, 1)]
    devices = [f"pg{number}x{os.getpid() % 100000}" for number in (0, 1)]
    made = []
    try:
        try:
            for name in names:
                ip("netns", "add", name)
                made.append(name)
            ip("link", "add", devices[0], "netns", names[0], "type", "veth", "peer", devices[1], "netns", names[1])
            for number, name in enumerate(names):
                ip("-n", name, "addr", "add", f"10.79.0.{number + 1}/24", "dev", devices[number])
                for device in ("lo", devices[number]):
                    ip("-n", name, "link", "set", device, "up")
        except (OSError, subprocess.CalledProcessError):
            yield Node(0, (), "127.0.0.1", "lo"), Node(1, (), "127.0.0.1", "lo")
            return
        first, second = (("ip", "netns", "exec", name) for name in names)
        yield Node(0, first, "10.79.0.1", devices[0]), Node(1, second, "10.79.0.1", devices[1])
    finally:
        for name in made:
            subprocess.run(["ip", "netns", "del", name], check=False)


def mirror(source: Path, target: Path) -> None:
    """The other machine's copy of what both begin with."""
    shutil.copytree(source, target, dirs_exist_ok=True)


def carry(store: "S3FileSystem", bucket: str, source: Path, target: Path) -> None:
    """Brings what a stage has made to the other machine as a remote would: one writes objects, the other reads them."""
    store.put(str(source), f"{bucket}/{source.name}", recursive=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    store.get(f"{bucket}/{source.name}", str(target), recursive=True)
    store.rm(f"{bucket}/{source.name}", recursive=True)
