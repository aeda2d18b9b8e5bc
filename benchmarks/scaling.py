"""What 100 million images would take: the main path on 1, 4, 16 and 64 workers, by calculation from measured rates.

    python -m benchmarks.scaling [--images 100000000] [--tasks 128] [--flops 200e12]

A worker is 32 cores like the one that this runs on; every rate is measured here on one core, and cores are assumed to
add up. A second table gives products to an accelerator of `--flops` in each worker, which is an assumption. Workers
share one cache, so that nothing is pulled: a rank reads its own rows over a network of 10 Gbit/s while it computes.
`images` and `features` are items, handed out whole; inside every other stage all workers are ranks of one run. What the
ranks do alike (serial), what they send each other, and what is hashed by one of them does not get shorter.
"""

import argparse
import hashlib
import io
import json
import math
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import timm
import torch
from PIL import Image

from benchmarks.mixture import hierarchical_mixture
from polygrain.clustering.sampled import COARSE
from polygrain.compute import device
from polygrain.retrieval import approximate
from polygrain.retrieval.neighbours import search

SIDE, DIM, KS, SAMPLE, EPOCHS = 224, 384, (1024, 4096, 16384, 65536), 4_000_000, 1
# Passes of all rows against all centroids that Lloyd takes, at most what benchmarks/README.md found for the eight k.
PASSES = 11
FORWARD = 4.6e9
"""Floating-point operations of ViT-S/16 on one image; training costs three times that."""
CORES, NETWORK, BATCH, START = 32, 1.25e9, 1024, 5.0
"""Of a worker: cores, bytes a second, images of a training step; seconds that a stage takes to start."""
TRAINED = 12 * 2 * DIM * 48
"""Weights of an adaptor set; a classifier of k x DIM trains beside it."""
WORKERS = (1, 4, 16, 64)


class Cost(NamedTuple):
    """Seconds on one worker of a stage or an item: what is shared among ranks, what each rank does, what one hashes.

    `reads`: bytes, shared as well. `sends`: bytes that each of several ranks sends and gets, in all.
    """

    shared: float
    reads: float = 0
    serial: float = 0
    sends: float = 0
    makes: float = 0
    items: int = 0


def processor_seconds(work: Callable[[], object], times: int) -> float:
    """Of one core, so that others on the machine do not count."""
    work()
    start = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - start) / times


def measure() -> dict[str, float]:
    """Seconds on one core of what the stages do, and bytes of a stored square."""
    rng, block = np.random.default_rng(0), bytes(64_000_000)
    photograph, square = io.BytesIO(), io.BytesIO()
    smooth = Image.fromarray(rng.integers(0, 256, (24, 32, 3), dtype=np.uint8)).resize((500, 375))
    smooth.save(photograph, "JPEG", quality=90)
    smooth.resize((SIDE, SIDE)).save(square, "JPEG", quality=90)

    def decode() -> None:
        Image.open(io.BytesIO(photograph.getvalue())).convert("RGB").resize((SIDE, SIDE)).save(io.BytesIO(), "JPEG")

    model, batch = timm.create_model("vit_small_patch16_224").eval(), torch.rand(8, 3, SIDE, SIDE)

    def forward() -> None:
        with torch.inference_mode(), device.autocast(batch.device, "auto"):
            model(batch)

    rates = {
        "md5_byte_s": processor_seconds(lambda: hashlib.md5(block).digest(), 2) / len(block),
        "photograph_s": processor_seconds(decode, 30),
        "square_s": processor_seconds(lambda: Image.open(io.BytesIO(square.getvalue())).convert("RGB"), 30),
        "square_bytes": len(square.getvalue()),
        "forward_s": processor_seconds(forward, 2) / len(batch),
    }
    return rates | measure_search()


def measure_search(n: int = 50_000) -> dict[str, float]:
    """Seconds of one pair of a row and a centroid, of putting a row into a cell, and of a row of a cell looked at."""
    x = hierarchical_mixture(n, DIM)
    pairs = processor_seconds(lambda: search(x[:4096], x[:4096], 1, "l2"), 2) / 4096**2
    start = time.process_time()
    built = approximate.Ivf(x, "cosine")
    trained = approximate.TRAINED * approximate.ROUNDS * approximate.cells(n) ** 2 * pairs
    add = max(time.process_time() - start - trained, 0) / n
    few, many = (processor_seconds(lambda p=p: built.search(x[:4096], 6, p), 1) / 4096 for p in (8, 64))
    return {"pair_s": pairs, "add_s": add, "scan_s": (many - few) / 56 / (n / built.most)}


def main_path(images: float, tasks: int, rates: dict[str, float], flops: float | None, effort: int) -> dict[str, Cost]:
    """The stages of the main path at this scale, and what each costs one worker."""
    forward = rates["forward_s"] / CORES if flops is None else FORWARD / flops
    pair = rates["pair_s"] / CORES if flops is None else 2 * DIM / flops
    square, part, feature = rates["square_s"] / CORES, images / tasks, DIM * 2
    pixels = images * rates["square_bytes"]
    graph = {
        "images": Cost(part * rates["photograph_s"] / CORES, makes=part * rates["square_bytes"], items=tasks),
        "features": Cost(part * max(forward, square), part * rates["square_bytes"], makes=part * feature, items=tasks),
        "seeds": Cost(SAMPLE * COARSE * pair, SAMPLE * feature, makes=COARSE * 8),
    }
    for k in KS:
        clusters = PASSES * SAMPLE * (k if k < COARSE else 2 * k**0.5) * pair
        compared = k if k < COARSE else approximate.cells(k) + 16 * k / approximate.cells(k)
        # Where a rank has the centroids of its cells alone, it sees everyone's rows.
        every = 0 if k < COARSE else images * 4 * DIM / NETWORK
        found = Cost(clusters + images * compared * pair, images * feature, every, PASSES * SAMPLE * 8, images * 8)
        graph[f"pseudo_labels, k = {k:,}"] = found
        sent = 2 * 4 * (TRAINED + k * DIM)
        graph[f"adaptor, k = {k:,}"] = training(images, 3 * forward, square, pixels, sent, 20e6)
    cells = approximate.cells(int(images))
    trained = approximate.TRAINED * approximate.ROUNDS * cells**2 * pair
    found = images * (rates["add_s"] + effort * images / cells * rates["scan_s"]) / CORES
    # A rank holds its part of every cell, so it sees the queries of all and finds the cells that they look into.
    every = trained + images * rates["add_s"] / CORES + images * 4 * DIM / NETWORK
    graph["knn_graph, ivf"] = Cost(found, images * feature, every, images * 40, images * 40)
    graph["fusion"] = training(images, 4 * forward, square, pixels, 2 * 4 * 12 * 2 * DIM**2, 100e6)
    return graph


def training(images: float, step: float, square: float, pixels: float, sent: float, makes: float) -> Cost:
    """`EPOCHS` of training at `step` seconds an image, with `sent` bytes of gradients after each step of all ranks."""
    return Cost(EPOCHS * images * max(step, square), EPOCHS * pixels, 0, EPOCHS * images / BATCH * sent, makes)


def seconds_of(cost: Cost, workers: int, md5: float) -> float:
    """Of a stage on so many workers; squares are read and decoded ahead, while the worker computes."""
    if cost.items:
        rounds = math.ceil(cost.items / workers)
        return rounds * (START + max(cost.shared, cost.reads / NETWORK) + cost.makes * md5)
    # Steps are shared: with w workers there is one w-th of them, each with one exchange.
    sends = cost.sends / NETWORK / workers if workers > 1 else 0
    work = max(cost.shared, cost.reads / NETWORK) / workers
    return START + work + cost.serial + sends + cost.makes * md5


def show(arguments: argparse.Namespace, rates: dict[str, float], flops: float | None) -> None:
    """Prints the hours of every stage and of all, for each number of workers."""
    products = f"{CORES} cores" if flops is None else f"{flops / 1e12:g} Tflop/s, assumed"
    claim = {"claim": f"{arguments.images:,.0f} images, computed", "products": products}
    graph = main_path(arguments.images, arguments.tasks, rates, flops, arguments.effort)
    totals = dict.fromkeys(WORKERS, 0.0)
    for stage, cost in graph.items():
        hours = {workers: seconds_of(cost, workers, rates["md5_byte_s"]) / 3600 for workers in WORKERS}
        totals = {workers: totals[workers] + taken for workers, taken in hours.items()}
        made = cost.makes * max(1, cost.items) / 1e9
        print(
            json.dumps(
                claim | {"stage": stage, "makes_gb": round(made, 1)} | {str(k): round(v, 2) for k, v in hours.items()}
            )
        )
    for workers, total in totals.items():
        print(json.dumps(claim | {"workers": workers, "hours": round(total, 1), "faster": round(totals[1] / total, 1)}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=float, default=1e8)
    parser.add_argument("--tasks", type=int, default=128)
    parser.add_argument("--flops", type=float, default=200e12, help="of an accelerator; assumed, not measured")
    parser.add_argument("--effort", type=int, default=32, help="cells of the graph that are looked into")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rates = measure()
    print(json.dumps({"measured on one core": rates}), flush=True)
    for flops in (None, arguments.flops):
        show(arguments, rates, flops)
