"""A signal to the flow, to dvc or to a stage: whether nothing survives and the next run completes."""

import signal
import uuid
from contextlib import suppress
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

from pipeline import dvc_api, server
from tests.helpers import toy

PLACES = {"flow": ["-m", "polygrain"], "dvc": dvc_api.DVC[1:3], "stage": ["train.py"]}


def find(mark: str, target: str) -> psutil.Process:
    """A marked process of this kind."""
    for one in toy.marked(mark):
        with suppress(psutil.NoSuchProcess):  # another one that ended meanwhile
            if one.cmdline()[1:3][: len(PLACES[target])] == PLACES[target]:
                return one
    raise ValueError(f"no process of {target} runs")


def is_free(slot: Path) -> bool:
    try:
        FileLock(slot).acquire(blocking=False).lock.release()
    except Timeout:
        return False
    return True


def case(folder: Path, number: signal.Signals, target: str, pages: server.Server) -> dict[str, object]:
    """Kills once a stage has an epoch behind it, runs again, and says what was left and what was not as promised."""
    mark = uuid.uuid4().hex
    held = toy.at(pages) | {"CUDA_VISIBLE_DEVICES": "0,1", "POLYGRAIN_SLOTS": str(folder / ".work/slots")}
    flow = toy.start(folder, "flow", log=folder.with_suffix(".log"), TOY_MARK=mark, **held)
    toy.wait_for_epoch(folder, flow)
    find(mark, target).send_signal(number)
    code = flow.wait(120)
    left = toy.survivors(mark)
    taken = [slot.name for slot in folder.glob(".work/slots/*.lock") if not is_free(slot)]
    checkpoints = len(list(folder.glob(".work/data/train/*/checkpoint")))
    output = toy.polygrain(folder, "flow", **held)
    continued = output.count("continues after epoch")
    promises = {
        f"no process survives: {left}": not left,
        f"no slot stays taken: {taken}": not taken,
        f"{checkpoints} checkpoints, {continued} stages continue": continued == checkpoints,
        "dvc status is clean": toy.up_to_date(folder),
        "the same bytes": toy.texts(folder) == toy.trained(),
    }
    return {"code": code, "continued": continued, "wrong": [name for name, is_so in promises.items() if not is_so]}
