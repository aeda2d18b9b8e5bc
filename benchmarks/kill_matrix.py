"""Three signals to the flow, to dvc and to a stage, three times each: nothing survives, the next run completes.

python -m benchmarks.kill_matrix [--signals INT TERM KILL] [--rounds 3]
"""

import argparse
import json
import signal
import sys
import tempfile
from pathlib import Path

from pipeline import server
from tests.pipeline import dying, toy

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--signals", nargs="+", default=["INT", "TERM", "KILL"])
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    passed = total = 0
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        (root / ".dvc").mkdir()
        process, api = server.start(root, server.free_port())
        toy.let_in(root)
        for name in arguments.signals:
            for target in ("flow", "dvc", "stage"):
                for turn in range(arguments.rounds):
                    folder = dying.make(root / f"{name}-{target}-{turn}")
                    result = dying.case(folder, signal.Signals[f"SIG{name}"], target, api)
                    wrong = dying.verdict(result)
                    passed, total = passed + (not wrong), total + 1
                    row = {key: result[key] for key in ("code", "ended_s", "continued", "survivors", "slots_taken")}
                    claim = {"claim": "kill matrix", "signal": name, "target": target, "turn": turn}
                    print(json.dumps(claim | {"wrong": wrong} | row), flush=True)
        process.terminate()
        process.wait()
    print(json.dumps({"claim": "kill matrix", "passed": passed, "of": total}))
    sys.exit(passed < total)
