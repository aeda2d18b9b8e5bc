"""The flow with branches side by side against serial `dvc repro`, and what is left when large outputs meet.

    python -m benchmarks.parallel_flow [--only stages large idle] [--rounds 5]

`stages`: 26 stages of 2 s (1 -> 8 -> 16 -> 1), 4 at once, in fresh copies of one repository.
`large`: 6 parallel stages of 600 MB each; without --wait-for-lock, dvc fails here.
`idle`: nothing to do in the default graph of this repository, which must be up to date.
"""

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

from ruamel.yaml import YAML

from benchmarks import toy
from benchmarks.measure import seconds


def say(**row: object) -> None:
    print(json.dumps(row), flush=True)


def recorded(folder: Path) -> int:
    return len(YAML(typ="safe").load((folder / "dvc.lock").read_text())["stages"])


def stages(root: Path, rounds: int) -> bool:
    """The flow's time over that of dvc alone, and whether each run is complete and equal to the serial one."""
    wait = dict.fromkeys(("source", "first", "second", "last"), "sleep 2")
    fresh, passed = toy.make(root / "fresh", first=8, second=16, then=wait), 0
    serial = Path(shutil.copytree(fresh, root / "serial", symlinks=True))
    peer = seconds(lambda: toy.run(serial, "dvc", "repro"))
    for turn in range(rounds):
        folder = Path(shutil.copytree(fresh, root / f"flow{turn}", symlinks=True))
        ours = seconds(lambda: toy.polygrain(folder, "flow", "--jobs", "4"))  # noqa: B023
        complete = recorded(folder) == 26 and toy.up_to_date(folder) and toy.texts(folder) == toy.texts(serial)
        passed += complete
        row = {"claim": "26 stages of 2 s, 4 at once", "round": turn, "ratio": round(ours / peer, 3), "bar": 0.65}
        say(**row, ours_s=ours, peer_s=peer, peer="serial dvc repro", complete=complete)
    say(claim="26 stages: complete dvc.lock, the same bytes as the serial one, clean status", passed=passed, of=rounds)
    return passed == rounds


def large(root: Path, rounds: int) -> bool:
    """Whether 6 stages that end together with 600 MB each are all recorded."""
    lost = failed = 0
    for turn in range(rounds):
        write = "head -c 600000000 /dev/zero | tr '\\0' x > data/second/${key}/large"
        folder = toy.make(root / f"large{turn}", first=1, second=6)
        graph = folder / "dvc.yaml"
        graph.write_text(
            graph.read_text().replace("${extra.second}", f"{write}; echo ${{key}} >> data/second/${{key}}/large")
        )
        spent = seconds(lambda: toy.polygrain(folder, "flow", "--jobs", "6", check=False))  # noqa: B023
        missing = 9 - recorded(folder)
        lost, failed = lost + missing, failed + (not toy.up_to_date(folder))
        say(claim="6 parallel stages of 600 MB", round=turn, lost=missing, seconds=spent)
        shutil.rmtree(folder)
    say(claim="6 parallel stages of 600 MB", rounds=rounds, failures=failed, lost=lost)
    return not lost and not failed


def idle() -> bool:
    """Seconds to find that nothing is to be done, by the flow and by dvc."""
    if not toy.up_to_date(toy.ROOT):
        sys.exit("error: the default graph is not up to date: `make repro` first")
    ours = min(seconds(lambda: toy.polygrain(toy.ROOT, "flow")) for _ in range(3))
    peer = min(seconds(lambda: toy.run(toy.ROOT, "dvc", "repro", "dvc.yaml")) for _ in range(3))
    say(claim="nothing to do, default graph", ours_s=ours, bar_s=12, peer_s=peer, peer_bar_s=3, peer="dvc repro")
    return ours <= 12 and peer <= 3


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="+", choices=["stages", "large", "idle"], default=["stages", "large", "idle"])
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        work = {"stages": lambda: stages(Path(temporary), arguments.rounds), "idle": idle}
        work["large"] = lambda: large(Path(temporary), arguments.rounds)
        sys.exit(not all([work[name]() for name in arguments.only]))
