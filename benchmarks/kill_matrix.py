"""Three signals to the flow, to dvc and to a stage, three times each: nothing survives, the next run completes.

python -m benchmarks.kill_matrix [--signals INT TERM KILL] [--rounds 3]
"""

import argparse
import json
import signal
import sys
import tempfile
import uuid
from contextlib import suppress
from itertools import product
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

from benchmarks import toy
from pipeline import dvc_api, server

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


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--signals", nargs="+", default=["INT", "TERM", "KILL"])
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as temporary:
        process, pages = server.start(Path(temporary), server.free_port())
        for name, target, turn in product(arguments.signals, PLACES, range(arguments.rounds)):
            folder = toy.make_training(Path(temporary, f"{name}-{target}-{turn}"))
            results.append(case(folder, signal.Signals[f"SIG{name}"], target, pages))
            print(json.dumps({"claim": "kill matrix", "signal": name, "target": target} | results[-1]), flush=True)
        process.terminate()
        process.wait()
    passed = sum(not result["wrong"] for result in results)
    print(json.dumps({"claim": "kill matrix", "passed": passed, "of": len(results)}))
    sys.exit(passed < len(results))
