"""What 100 million images would take: the main path scheduled on 1, 4 and 16 workers, by calculation.

    python -m benchmarks.scaling [--images 100000000] [--tasks 100]

Two rates are measured here (MD5, and decoding a photograph); those of accelerators and network are assumptions, printed
in the first row. A stage costs: pull its inputs, compute, hash its outputs (dvc does so alone, under its lock), push.
"""

import argparse
import hashlib
import heapq
import io
import json
from collections.abc import Callable
from graphlib import TopologicalSorter
from typing import NamedTuple

import numpy as np
from PIL import Image

from benchmarks.measure import seconds

SIDE, DIM, KS, EPOCHS, LLOYD = 224, 384, (1024, 4096, 16384, 65536), 1, 20
PIXELS, FEATURE = SIDE * SIDE * 3, DIM * 2
"""Bytes of a stored image (uint8) and of its feature (float16)."""
FORWARD = 4.6e9
"""Floating-point operations of ViT-S/16 on one image; training costs three times that."""
ASSUMED = {"cores": 32, "gpu_flops": 200e12, "network_bytes_s": 1.25e9}
"""A worker: 32 cores, one accelerator at 200 TFLOP/s sustained, 10 Gbit/s to the remote."""


class Cost(NamedTuple):
    """What one stage pulls and makes, in bytes, and how long it computes, in seconds."""

    upstream: tuple[str, ...]
    pulls: float
    computes: float
    makes: float


def main_path(images: float, tasks: int, decode_s: float) -> dict[str, Cost]:
    """The stages of the main path at this scale; every stage pulls what dvc.yaml says it reads."""
    flops, part = ASSUMED["gpu_flops"], images / tasks
    graph = {}
    for task in range(tasks):
        graph[f"images@{task}"] = Cost((), 0, part * decode_s / ASSUMED["cores"], part * PIXELS)
        graph[f"features@{task}"] = Cost((f"images@{task}",), part * PIXELS, part * FORWARD / flops, part * FEATURE)
    gathered = tuple(f"features@{task}" for task in range(tasks))
    graph["seeds"] = Cost(gathered, images * FEATURE, 2 * images * max(KS) * DIM / flops, max(KS) * 8)
    for k in KS:
        lloyd = LLOYD * 2 * images * k * DIM / flops
        graph[f"pseudo_labels@{k}"] = Cost(("seeds", *gathered), images * FEATURE, lloyd, images * 4)
        train = EPOCHS * images * 3 * FORWARD / flops
        graph[f"adaptor@{k}"] = Cost((f"pseudo_labels@{k}",), images * PIXELS, train, 20e6)
    graph["knn_graph"] = Cost(gathered, images * FEATURE, 2 * images**2 * DIM / flops, images * 5 * 4)
    adaptors = tuple(f"adaptor@{k}" for k in KS)
    graph["fusion"] = Cost((*adaptors, "knn_graph"), images * PIXELS, EPOCHS * images * 4 * FORWARD / flops, 100e6)
    return graph


def duration(cost: Cost, md5: float) -> float:
    """Seconds of one stage on one worker."""
    return (cost.pulls + cost.makes) / ASSUMED["network_bytes_s"] + cost.computes + cost.makes / md5


def schedule(graph: dict[str, Cost], workers: int, length: Callable[[Cost], float]) -> tuple[float, dict[str, float]]:
    """Seconds until all is done when each free worker takes the next ready stage, and when each stage ended."""
    sorter = TopologicalSorter({name: cost.upstream for name, cost in graph.items()})
    sorter.prepare()
    ready: list[str] = []
    running: list[tuple[float, str]] = []
    now, ends = 0.0, {}
    while sorter.is_active():
        ready += sorter.get_ready()
        while ready and len(running) < workers:
            name = ready.pop(0)
            heapq.heappush(running, (now + length(graph[name]), name))
        now, name = heapq.heappop(running)
        ends[name] = now
        sorter.done(name)
    return now, ends


def critical(graph: dict[str, Cost], ends: dict[str, float]) -> list[str]:
    """The chain of stages that ends last, by kind, from first to last."""
    name, chain = max(ends, key=ends.__getitem__), []
    while True:
        chain.append(name.split("@")[0])
        if not graph[name].upstream:
            return list(dict.fromkeys(reversed(chain)))
        name = max(graph[name].upstream, key=ends.__getitem__)


def decode_seconds() -> float:
    """Seconds to decode and resize one photograph of 500 x 375 on one core."""
    rng = np.random.default_rng(0)
    smooth = Image.fromarray(rng.integers(0, 256, (24, 32, 3), dtype=np.uint8)).resize((500, 375))
    smooth.save(buffer := io.BytesIO(), "JPEG", quality=90)

    def work() -> None:
        for _ in range(50):
            Image.open(io.BytesIO(buffer.getvalue())).convert("RGB").resize((SIDE, SIDE))

    return seconds(work) / 50


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=float, default=1e8)
    parser.add_argument("--tasks", type=int, default=100)
    arguments = parser.parse_args()
    block, claim = bytes(256_000_000), {"claim": "100 million images, computed"}
    md5, decode_s = len(block) / seconds(lambda: hashlib.md5(block).digest()), decode_seconds()
    print(json.dumps(claim | {"measured": {"md5_bytes_s": md5, "decode_s": decode_s}, "assumed": ASSUMED}))
    graph = main_path(arguments.images, arguments.tasks, decode_s)
    kinds: dict[str, list[float]] = {}
    for name, cost in graph.items():
        parts = (cost.pulls / ASSUMED["network_bytes_s"], cost.computes, cost.makes / md5, cost.makes / 1e9)
        kinds[name.split("@")[0]] = [a + b for a, b in zip(kinds.get(name.split("@")[0], [0] * 4), parts, strict=True)]
    for kind, (pull, compute, hashing, made) in kinds.items():
        hours = {"pull_h": pull / 3600, "compute_h": compute / 3600, "hash_h": hashing / 3600, "makes_gb": made}
        print(json.dumps(claim | {"stage": kind} | {key: round(value, 2) for key, value in hours.items()}))
    for workers in (1, 4, 16):
        total, ends = schedule(graph, workers, lambda cost: duration(cost, md5))
        found = {"workers": workers, "hours": round(total / 3600, 1), "critical": critical(graph, ends)}
        print(json.dumps(claim | found))
