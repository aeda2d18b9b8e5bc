"""A training step of `adaptor` (vit48, 48 px, batch 32) beside other work, with threads as stages have them.

Prints three rows: the step beside one busy loop for each core and alone, against waits as libraries have them by
themselves; two trainings at once with half of the cores each, against one after the other. Medians of rounds in turn.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[1]
ROUNDS, STEPS = 9, 4
LOOP = [sys.executable, "-c", "while True: pass"]


def train() -> None:
    """Answers each number of steps on stdin with the seconds that they took."""
    import torch
    from ruamel.yaml import YAML

    from polygrain.encoder.model import load
    from polygrain.encoder.views import augment
    from polygrain.losses.norm_softmax import norm_softmax
    from stages.adaptor import Params, add_adaptors

    params = Params(**YAML(typ="safe").load(ROOT / "params.yaml")["adaptor"])
    model, draws = load(ROOT / "encoders/vit48"), torch.Generator().manual_seed(0)
    parts = add_adaptors(model, "k128", params.width, 0)
    classifier = torch.nn.Parameter(torch.randn(128, model.dim, generator=draws))
    optimizer = torch.optim.Adam([*parts.parameters(), classifier])
    pixels = torch.randint(256, (params.batch, 48, 48, 3), dtype=torch.uint8, generator=draws)
    labels = torch.randint(128, (params.batch,), generator=draws)
    for line in sys.stdin:
        start = time.perf_counter()
        for _ in range(int(line)):
            tokens = model.features(augment(pixels, 48, params.augmentation, draws))
            optimizer.zero_grad()
            norm_softmax(tokens, classifier, labels, params.gamma)[0].backward()
            optimizer.step()
        print(time.perf_counter() - start, flush=True)


def trainer(environment: dict[str, str]) -> subprocess.Popen:
    command = [sys.executable, "-m", "benchmarks.busy", "train"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=ROOT, env=os.environ | environment, **pipes)


def seconds(steps: int, *trainers: subprocess.Popen) -> float:
    """Until all trainers have done so many steps each."""
    for one in trainers:
        print(steps, file=one.stdin, flush=True)
    return max([float(one.stdout.readline()) for one in trainers])


def main() -> None:
    from benchmarks.measure import report
    from polygrain.runner import threads

    for name in [*os.environ]:
        if name.startswith(("GOMP_", "OMP_", "OPENBLAS_")):
            del os.environ[name]
    short, own = trainer(threads.variables()), trainer({})
    halves = [trainer(threads.variables(2)) for _ in range(2)]
    loops = [subprocess.Popen(LOOP) for _ in range(threads.cores())]
    try:
        rows = {name: [] for name in ("beside", "own beside", "alone", "own alone", "at once", "in turn")}
        for turn in range(ROUNDS + 1):
            for loop in loops:
                loop.send_signal(signal.SIGSTOP)
            times = {"alone": seconds(STEPS, short), "own alone": seconds(STEPS, own)}
            times |= {"in turn": seconds(2 * STEPS, short), "at once": seconds(STEPS, *halves)}
            for loop in loops:
                loop.send_signal(signal.SIGCONT)
            times |= {"beside": seconds(STEPS, short), "own beside": STEPS * seconds(1, own)}
            for name, one in times.items():
                rows[name] += [one] * bool(turn)  # the first is slower
    finally:
        for process in (short, own, *halves, *loops):
            process.kill()
    times = {name: median(row) / STEPS for name, row in rows.items()}
    facts = {"peer": "waits of the libraries", "threads": threads.cores(), "load": os.getloadavg()[0]}
    over = round(times["beside"] / times["alone"], 2)
    claim = "adaptor step beside a busy loop for each core"
    report(claim, times["beside"], times["own beside"], over_alone=over, **facts)
    report("adaptor step alone", times["alone"], times["own alone"], **facts)
    facts |= {"peer": "one after the other", "threads": max(1, threads.cores() // 2)}
    report("two adaptor steps at once", times["at once"], times["in turn"], **facts)


if __name__ == "__main__":
    train() if "train" in sys.argv else main()
