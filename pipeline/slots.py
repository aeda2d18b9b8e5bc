"""GPU slots by file lock: the kernel frees a slot the moment its holder dies, however it dies.

A lease kept by a server does not: a killed flow's leases block its successors for minutes.
"""

import fcntl
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Event
from typing import NamedTuple

from pipeline import private


class Slots(NamedTuple):
    """Devices by number, and the descriptors that hold them; a child that inherits those holds them too."""

    devices: list[str]
    descriptors: list[int]


def visible() -> list[str]:
    """The accelerators of this machine, as CUDA_VISIBLE_DEVICES names them; empty where there is none."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [device for device in named.split(",") if device.strip() not in ("", "-1")]
    with suppress(OSError, subprocess.SubprocessError):
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30, check=True).stdout
        return [str(number) for number, line in enumerate(listed.splitlines()) if line.startswith("GPU ")]
    return []


def folder() -> Path:
    """Where the lock files lie: one place per user and machine, since all clones share its devices."""
    return Path(os.environ.get("POLYGRAIN_SLOTS", Path(tempfile.gettempdir()) / f"polygrain-slots-{os.getuid()}"))


@contextmanager
def held(count: int, devices: list[str], stopping: Event) -> Iterator[Slots | None]:
    """Waits for `count` of the devices and holds them; None when stopped first. Nothing is held where none are asked.

    ValueError if the machine has fewer devices than asked; a machine without any runs everything on the CPU.
    """
    if count == 0 or not devices:
        yield Slots([], [])
        return
    if count > len(devices):
        raise ValueError(f"a stage asks for {count} GPUs (`meta: gpu`); this machine shows {len(devices)}: {devices}")
    # The temporary folder is everyone's: who made this one first could hold all slots, or have files written elsewhere.
    private.own(folder())
    with ExitStack() as stack:
        while (taken := attempt(count, devices)) is None:
            if stopping.wait(0.2):
                yield None
                return
        for descriptor in taken.descriptors:
            stack.callback(os.close, descriptor)
        yield taken


def attempt(count: int, devices: list[str]) -> Slots | None:
    """All of `count` devices at once, or none: holding one while waiting for another would lock two stages out."""
    taken = Slots([], [])
    for device in devices:
        descriptor = os.open(folder() / device, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            continue
        taken.devices.append(device)
        taken.descriptors.append(descriptor)
        if len(taken.devices) == count:
            return taken
    for descriptor in taken.descriptors:
        os.close(descriptor)
    # Two that each hold half and let go together must not meet again at once.
    time.sleep(0.01 * (os.getpid() % 7))
    return None
