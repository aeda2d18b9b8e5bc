"""GPU slots by file lock: the kernel frees a slot the moment its holder dies.

A lease kept by a server does not: those of a killed flow block its successors for minutes.
"""

import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from threading import Event
from typing import Any

from filelock import FileLock, Timeout


def visible() -> list[str]:
    """The GPUs of this machine, as CUDA_VISIBLE_DEVICES names them; empty where there is none."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [device for word in named.split(",") if (device := word.strip()) not in ("", "-1")]
    return [str(number) for number in range(len(cards()))]


@cache
def cards() -> list[str]:
    """The UUIDs of this machine's GPUs by number; empty where nvidia-smi does not say them."""
    with suppress(OSError, subprocess.SubprocessError):
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30, check=True).stdout
        return re.findall(r"^GPU \d+: .*\(UUID: (\S+)\)", listed, re.MULTILINE)
    return []


def card(device: str) -> str:
    """The UUID of a GPU that CUDA_VISIBLE_DEVICES names by its number, or by how its UUID begins; else its name."""
    if device.isdecimal():
        return cards()[int(device)] if int(device) < len(cards()) else device
    return next((uuid for uuid in cards() if uuid.startswith(device)), device)


def asked(meta: Mapping[str, Any]) -> int:
    """The number of GPUs in a stage's `meta`: `gpu: 1`, or `gpu: each` for one for each of its processes here."""
    if meta.get("gpu") != "each":
        return int(meta.get("gpu", 0))
    if "POLYGRAIN_TORCHRUN" in os.environ:  # processes on several machines: on this one all GPUs
        return len(visible()) or 1
    return int(os.environ.get("POLYGRAIN_PROCESSES", "1"))


@contextmanager
def lent(meta: Mapping[str, Any], stopping: Event) -> Iterator[dict[str, str]]:
    """Holds a stage's GPUs; the variables that show it these GPUs, or none where it asks for none."""
    count = asked(meta)
    with hold(count, stopping) as devices:
        # Where no GPU is known here, a stage that asks for one looks for itself.
        yield {"CUDA_VISIBLE_DEVICES": ",".join(devices)} if devices or not count else {}


def folder() -> Path:
    """The folder of the lock files: one per user and machine, since all clones share its devices."""
    return Path(os.environ.get("POLYGRAIN_SLOTS", Path(tempfile.gettempdir()) / f"polygrain-slots-{os.getuid()}"))


@contextmanager
def hold(count: int, stopping: Event) -> Iterator[list[str]]:
    """Waits for `count` GPUs and holds them; none on a machine without any, or where it is stopped first.

    ValueError if the machine has fewer than asked.
    """
    devices = visible() if count else []
    if devices and count > len(devices):
        raise ValueError(
            f"a stage asks for {count} GPUs (`meta: gpu`, POLYGRAIN_PROCESSES); this machine shows {len(devices)}, "
            f"{', '.join(devices)}: ask for {len(devices)} at most"
        )
    folder().mkdir(mode=0o700, exist_ok=True, parents=True)
    with ExitStack() as stack:
        while devices and not stopping.is_set():
            held: list[str] = []
            for device in devices:
                with suppress(Timeout):
                    stack.enter_context(FileLock(folder() / f"{card(device)}.lock").acquire(blocking=False))
                    held.append(device)
                if len(held) == count:
                    yield held
                    return
            # Holding one while waiting for another would lock two stages out.
            stack.close()
            time.sleep(0.2 + 0.01 * (os.getpid() % 7))
        yield []
