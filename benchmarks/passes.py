"""How often an image passes the network in a run of `polygrain new` without training, and what the run takes.

    python -m benchmarks.passes --images DIR [--images DIR2] [--encoder FILE --architecture NAME --side PX ...]

The words are those of `polygrain new`. All stages run in this process, in a temporary copy of the repository. A hook on
the first convolution, a ViT's patch embedding too, counts images, weighed by their pixels: 1 is one image at the side
that was chosen. One line of JSON for each stage that has passes, and one for the run, beside one bare pass of all its
images at that side. `again` is what has passes after a change of `choice.layer`.
"""

import json
import os
import runpy
import shlex
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.gain import copy_repository, read_values, write_values
from pipeline import dvc_api, graph
from polygrain.compute import device
from polygrain.config.schema import Section
from polygrain.encoder.extract import extract
from polygrain.encoder.model import load
from polygrain.runner import command
from polygrain.store.collection import open_pixels

NAME = "passes"


@contextmanager
def pixels_seen() -> Iterator[list[int]]:
    """A list of one number: the pixels of images that went into a network's first convolution, a ViT's patches too."""
    seen = [0]

    def count(module: Any, inputs: tuple[Any, ...]) -> None:
        if isinstance(module, torch.nn.Conv2d) and module.in_channels == 3:
            images, _, height, width = inputs[0].shape
            seen[0] += images * height * width

    hook = torch.nn.modules.module.register_module_forward_pre_hook(count)
    try:
        yield seen
    finally:
        hook.remove()


def in_process(main: Callable[..., str], params: type[Section] | None, **borrowed: str) -> None:
    """`command.run`, but that it returns."""
    stage = sys.modules["__main__"].__spec__.name.rpartition(".")[2]
    arguments, keywords = command.parse(main, borrowed)
    main(**arguments, **keywords, **command.read(stage, main, params, borrowed))


def clocks() -> np.ndarray:
    """Seconds on the wall and of all threads: where others compute, the second ratio is the one to read."""
    return np.array([time.perf_counter(), time.process_time()])


def run(stages: list[list[str]]) -> Counter:
    """Runs the stages, each the words of its command; the pixels that each has seen."""
    found = Counter()
    for words in stages:
        sys.argv = words
        with pixels_seen() as seen:
            runpy.run_module(f"stages.{words[0]}", run_name="__main__", alter_sys=True)
        item = words[words.index("--model") + 1] if "--model" in words else ""
        found[f"{words[0]} {item}".strip()] += seen[0]
    return found


def main() -> None:
    given, root = [str(Path(word).resolve()) if Path(word).exists() else word for word in sys.argv[1:]], Path.cwd()
    command.run = in_process
    with tempfile.TemporaryDirectory() as folder:
        copy_repository(Path(folder))
        polygrain = [sys.executable, "-m", "polygrain.cli.main", "new", NAME, *given]
        subprocess.run(polygrain, cwd=folder, check=True, env=os.environ | {"PYTHONPATH": folder})
        os.chdir(Path(folder) / "profiles" / NAME)
        with dvc_api.opened(Path.cwd()) as repo:
            stages = [shlex.split(stage.cmd)[2:] for stage in graph.plan(repo, Path.cwd()).values()]
        start = clocks()
        found, taken = run(stages), clocks() - start

        values, model = read_values(Path("params.yaml")), load("data/resolution").to(device.best())
        pixels = open_pixels(Path("data/images"), list(values["tasks"]))
        rows, one = np.arange(len(pixels)), len(pixels) * model.config.side**2
        start = clocks()
        bare = [clocks() for _ in extract(model, pixels, rows, *device.inference(model.config.size), "bare pass")][-1]
        ratios = taken / (bare - start)
        write_values(Path("params.yaml"), values | {"choice": values["choice"] | {"layer": "none"}})
        behind = [words for words in stages if words[0] in ("choice", "gallery", "evaluation")]
        behind = [words for words in behind if words[-1] != "encoder"]  # which does not depend on the choice
        again = run(behind)
        os.chdir(root)
    for stage, seen in found.items():
        if seen:
            print(json.dumps({"stage": stage, "passes": round(seen / one, 2)}))
    passes = round(found.total() / one, 2)
    facts = {"images": len(rows), "side": model.config.side, "passes": passes, "again": round(again.total() / one, 2)}
    facts |= {"run_s": round(taken[0], 1), "ratio": round(ratios[0], 2), "ratio_cpu": round(ratios[1], 2)}
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
