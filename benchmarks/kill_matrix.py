"""Three signals to the flow, to dvc and to a stage, three times each: nothing survives, the next run completes.

python -m benchmarks.kill_matrix [--signals INT TERM KILL] [--rounds 3]
"""

import argparse
import json
import signal
import sys
import tempfile
from itertools import product
from pathlib import Path

from pipeline import server
from tests.pipeline import dying, toy

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--signals", nargs="+", default=["INT", "TERM", "KILL"])
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as temporary:
        process, pages = server.start(Path(temporary), server.free_port())
        for name, target, turn in product(arguments.signals, dying.PLACES, range(arguments.rounds)):
            folder = toy.make_training(Path(temporary, f"{name}-{target}-{turn}"))
            results.append(dying.case(folder, signal.Signals[f"SIG{name}"], target, pages))
            print(json.dumps({"claim": "kill matrix", "signal": name, "target": target} | results[-1]), flush=True)
        process.terminate()
        process.wait()
    passed = sum(not result["wrong"] for result in results)
    print(json.dumps({"claim": "kill matrix", "passed": passed, "of": len(results)}))
    sys.exit(passed < len(results))
