"""What one GPU does, within 40 minutes and without a network: the table of docs/results.md, section `gpu`.

    python -m benchmarks --gpu            # on a GPU: measures, and writes the table
    python -m benchmarks --gpu --dry      # anywhere, in a minute: all parts at sizes that only show that they work

Each part is a process of its own, and prints a JSON line for each row. One that the time no longer allows is left out
and named. `limit` is what the products alone would take at the rate of the largest product measured here, in the same
precision; for vectors it is what the card can read and write.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import faiss
import numpy as np
import timm
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.gain import copy_repository
from benchmarks.gsp_training_step import Learner
from benchmarks.images import bare_training, build
from benchmarks.mixture import PAPER, hierarchical_mixture, scaled
from benchmarks.projectors import HALF, stepper
from polygrain.clustering.lloyd import lloyd
from polygrain.clustering.screen import Screen
from polygrain.clustering.seeding import nearest_seeds, seed_order
from polygrain.compute import device
from polygrain.encoder.config import Config
from polygrain.encoder.extract import extract
from polygrain.retrieval.neighbours import nearest
from polygrain.store import arrays

MINUTES = 40
RESULTS = Path(__file__).parent.parent / "docs/results.md"
BEGIN, END = "<!-- gpu: begin -->\n", "<!-- gpu: end -->\n"
Row = dict[str, str | float]


def seconds(work: Callable[[], object], rounds: int = 3) -> float:
    """The fastest of some runs after one to warm up; the device is waited for."""
    found = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        work()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        found.append(time.perf_counter() - start)
    return min(found[1:])


def product_rate(where: torch.device, side: int) -> float:
    """Flops per second of one large square product, in the precision that `auto` takes here."""
    kind = torch.bfloat16 if device.has_bfloat16(where) else torch.float32
    x = torch.randn(side, side, device=where, dtype=kind)
    return 2 * side**3 / seconds(lambda: x @ x)


def limits(where: torch.device, dry: bool) -> Iterator[Row]:
    side = 256 if dry else 8192
    yield {"what": f"one product of {side} x {side}", "rate": product_rate(where, side) / 1e12, "unit": "TFLOP/s"}
    x = torch.empty(2**20 if dry else 2**30, device=where)
    yield {"what": "a copy within memory", "rate": 8 * len(x) / seconds(x.clone) / 1e9, "unit": "GB/s"}


def encoder(where: torch.device, dry: bool) -> Iterator[Row]:
    """Extraction from the store and training of adaptors, ViT-S/16 at 224, and the memory of both."""
    rate, model = product_rate(where, 256 if dry else 8192), build()
    for batch in (2,) if dry else (64, 256, 1024):
        count = batch * (1 if dry else 10)
        images = torch.rand(batch, 3, 224, 224, device=where)
        with FlopCounterMode(display=False) as counter, torch.inference_mode():
            model(images[:1])
        flops = counter.get_total_flops()
        with tempfile.TemporaryDirectory() as folder:
            squares = np.random.default_rng(0).integers(0, 256, (count, 256, 256, 3), dtype=np.uint8)
            arrays.write(Path(folder) / "pixels.zarr", squares)
            pixels = arrays.open(Path(folder) / "pixels.zarr")

            def ours(pixels: arrays.Reader = pixels, count: int = count, batch: int = batch) -> None:
                for _ in extract(model, pixels, np.arange(count), batch, "auto", "features"):
                    pass

            def bare(images: torch.Tensor = images, count: int = count, batch: int = batch) -> None:
                with torch.inference_mode(), device.autocast(where, "auto"):
                    for _ in range(count // batch):
                        model(images)

            spent, peer = seconds(ours, 1), seconds(bare, 1)
        more = {"unit": "images/s", "peer": "bare forward", "ratio": peer / spent}
        share = count * flops / spent / rate
        yield {"what": f"extraction, batches of {batch}", "rate": count / spent, "limit": share, **more}
        if where.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        steps = 1 if dry else 10
        spent = seconds(lambda images=images, steps=steps: bare_training(build(), images, "auto", steps), 1) / steps
        row = {"what": f"a training step of adaptors, batches of {batch}", "rate": batch / spent, "unit": "images/s"}
        memory = torch.cuda.max_memory_allocated() / 2**30 if where.type == "cuda" else float("nan")
        yield row | {"limit": 3 * batch * flops / spent / rate, "memory": memory}


def vectors(where: torch.device, dry: bool) -> Iterator[Row]:
    """k-means for the paper's eight k and its neighbour graph, each beside its peers where they are installed."""
    n = 2_000 if dry else PAPER
    x = hierarchical_mixture(n)
    there = torch.from_numpy(x).to(where)
    sizes = scaled(n)
    start = time.perf_counter()
    screen = Screen(there)
    seeds = seed_order(x, max(sizes), 0, screen=screen)
    for k in sizes:
        lloyd(there, there[torch.from_numpy(seeds.order[:k]).to(where)], nearest_seeds(seeds.records, k, n), 300,
              nearest=True, exchanges=3, screen=screen)  # fmt: skip
    spent = time.perf_counter() - start
    row = {"what": f"pseudo-labels, {len(sizes)} k, n = {n:,}, seeds included", "rate": spent, "unit": "s"}
    gpus = faiss.get_num_gpus() if hasattr(faiss, "get_num_gpus") else 0
    if gpus or dry:
        start = time.perf_counter()
        for k in sizes:
            faiss.Kmeans(x.shape[1], k, max_points_per_centroid=n, min_points_per_centroid=1, gpu=bool(gpus)).train(x)
        row |= {"peer": "faiss.Kmeans, no seeds drawn", "ratio": (time.perf_counter() - start) / spent}
    yield row
    if find_spec("flash_kmeans"):
        from flash_kmeans import batch_kmeans_Euclid

        start = time.perf_counter()
        for k in sizes:
            batch_kmeans_Euclid(there[None], n_clusters=k, tol=1e-4)
        torch.cuda.synchronize()
        yield row | {"peer": "flash-kmeans, random seeds", "ratio": (time.perf_counter() - start) / spent}
    graph = seconds(lambda: nearest(x, x, 5, exclude_self=True), 1)
    yield {"what": f"neighbour graph, n = {n:,}, exact", "rate": graph, "unit": "s"}


def steps(where: torch.device, dry: bool) -> Iterator[Row]:
    """Training steps of what trains more than adaptors."""
    batch, side = (8, 64) if dry else (32, 224)
    backbone = timm.create_model("resnet18" if dry else "resnet50", num_classes=0, global_pool="").to(where)
    images, labels = torch.randn(batch, 3, side, side, device=where), torch.arange(batch, device=where) // 4
    spent = {}
    for pooling, values in (("gap", {}), ("gsp", {"prototypes": 64, "mu": 0.3, "epsilon": 5.0})):
        learner = Learner(backbone, pooling, channels=backbone.num_features, **values).to(where)
        optimiser = torch.optim.SGD(learner.parameters(), 1e-4)
        spent[pooling] = seconds(lambda one=learner, by=optimiser: one.step(by, images, labels))
    more = {"peer": "average pooling", "ratio": spent["gap"] / spent["gsp"]}
    yield {"what": f"GSP, a step of {batch} images", "rate": batch / spent["gsp"], "unit": "images/s", **more}
    config = Config(architecture="resnet18" if dry else "resnet50", size=side, resize=side, mean=HALF, std=HALF)
    found = {heads: seconds(stepper(config, heads, batch, 512, 64 * batch, where=where)) for heads in (1, 4)}
    more = {"peer": "one head", "ratio": found[1] / found[4]}
    yield {"what": f"MPCL, four heads, {batch} pairs", "rate": 1 / found[4], "unit": "steps/s", **more}


def fused(where: torch.device, dry: bool) -> Iterator[Row]:
    """The fused forward pass against the bare one: eight sets in every layer of ViT-S/16."""
    command = [sys.executable, "-m", "benchmarks.fused_forward", *([] if dry else ["--full"])]
    for line in subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines():
        row = json.loads(line)
        yield {"what": row["claim"], "rate": row["ours_s"], "unit": row.get("unit", "s"), "ratio": row.get("ratio")}


def graph(where: torch.device, dry: bool) -> Iterator[Row]:
    """The default graph whole, in a copy of the repository with an empty cache."""
    with tempfile.TemporaryDirectory() as folder:
        copy_repository(Path(folder))
        (Path(folder) / ".dvc/config.local").unlink()
        command = [sys.executable, "-m", "polygrain", "run", *(["encoder"] if dry else [])]
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # a stage takes the first python
        start = time.perf_counter()
        subprocess.run(command, cwd=folder, check=True, stdout=sys.stderr, env=os.environ | {"PATH": path})
        spent = time.perf_counter() - start
    yield {"what": "the default graph", "rate": spent, "unit": "s"}


PARTS = {part.__name__: part for part in (limits, encoder, vectors, steps, fused, graph)}


def table(rows: list[Row], name: str, left_out: list[str]) -> str:
    """The section of docs/results.md between its two marks."""

    def shown(row: Row, key: str, form: str) -> str:
        value = row.get(key)
        return "" if value is None or value != value else format(value, form)

    lines = [f"{name}, torch {torch.__version__}.", ""]
    lines += ["| | | | share of the limit | against | ratio | GiB |", "|---|---:|---|---:|---|---:|---:|"]
    for row in rows:
        cells = [row["what"], shown(row, "rate", ".4g"), row["unit"], shown(row, "limit", ".0%"), row.get("peer", "")]
        lines.append("| " + " | ".join([*cells, shown(row, "ratio", ".3g"), shown(row, "memory", ".1f")]) + " |")
    if left_out:
        lines += ["", f"Not measured: {', '.join(left_out)}."]
    return "\n".join(lines) + "\n"


def main(dry: bool) -> None:
    if not dry and not torch.cuda.is_available():
        sys.exit("error: there is no GPU here; `python -m benchmarks --gpu --dry` shows that all parts work")
    rows, left_out, end = [], [], time.monotonic() + 60 * MINUTES
    for part in PARTS:
        command = [sys.executable, "-m", "benchmarks.gpu", "--part", part, *(["--dry"] if dry else [])]
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=max(1, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            left_out.append(f"{part} (no time left)")
            continue
        rows += [json.loads(line) for line in done.stdout.splitlines()]
        if done.returncode:
            left_out.append(f"{part} (failed)")
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU: sizes that only show that it works"
    text = table(rows, name, left_out)
    print(text)
    if not dry:
        before, _, rest = RESULTS.read_text(encoding="utf-8").partition(BEGIN)
        RESULTS.write_text(before + BEGIN + text + END + rest.partition(END)[2], encoding="utf-8")
    if left_out:
        sys.exit(f"not measured: {', '.join(left_out)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=PARTS)
    parser.add_argument("--dry", action="store_true")
    arguments = parser.parse_args()
    if arguments.part is None:
        main(arguments.dry)
    else:
        for one in PARTS[arguments.part](device.best(), arguments.dry):
            print(json.dumps(one), flush=True)
