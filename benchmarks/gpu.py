"""Times of one GPU, within 40 minutes and without a network: the table of docs/results/gpu.md.

    python -m benchmarks --gpu            # on a GPU: measures, and writes the table
    python -m benchmarks --gpu --dry      # anywhere, in a minute: all parts at small sizes

Each part is a process of its own and prints a line of JSON for each row. `limit` is the share of what the largest
product measured here reaches, in the same precision.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Timer

import faiss
import numpy as np
import torch
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import images
from benchmarks.mixture import PAPER, hierarchical_mixture, scaled
from polygrain.clustering.lloyd import kmeans, lloyd
from polygrain.clustering.seeding import nearest_seeds, seed_order
from polygrain.compute import device
from polygrain.encoder.extract import embed
from polygrain.encoder.model import load
from polygrain.retrieval.approximate import nearest_others
from polygrain.retrieval.neighbours import nearest, search, search_by_torch
from polygrain.store import arrays

MINUTES = 40
PRECISIONS = ("float32", "tf32", "bfloat16")
RESULTS = Path(__file__).parent.parent / "docs/results/gpu.md"
BEGIN, END = "<!-- gpu: begin -->\n", "<!-- gpu: end -->\n"
Row = dict[str, str | float]


def seconds(work: Callable[[], object], rounds: int = 3) -> float:
    """The fastest of some runs after one to warm up; the device is waited for."""
    times = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        work()
        images.wait()
        times.append(time.perf_counter() - start)
    return min(times[1:])


def product_rate(where: torch.device, side: int) -> float:
    """Flops per second of one large square product, in the precision that `auto` takes here."""
    kind = torch.bfloat16 if device.has_bfloat16(where) else torch.float32
    x = torch.randn(side, side, device=where, dtype=kind)
    return 2 * side**3 / seconds(lambda: x @ x)


def encoder(where: torch.device, dry: bool) -> Iterator[Row]:
    """Features from the store and training of adaptors, ViT-S/16 at 224, and the memory of the latter."""
    side = 256 if dry else 8192
    rate, model = product_rate(where, side), images.build()
    yield {"what": f"one product of {side} x {side}", "rate": rate / 1e12, "unit": "TFLOP/s"}
    adapted, adaptors = images.adaptable()
    one, passes = torch.rand(1, 3, 224, 224, device=where), 1 if dry else 10
    with FlopCounterMode(display=False) as forward, torch.inference_mode():
        model(one)
    with FlopCounterMode(display=False) as step:  # the frozen weights need no gradient of their own
        images.bare_training(adapted, one, 1)
    for size in (2,) if dry else (64, 256, 1024):
        batch, count = torch.rand(size, 3, 224, 224, device=where), size * passes
        with tempfile.TemporaryDirectory() as folder:
            squares = np.random.default_rng(0).integers(0, 256, (count, 256, 256, 3), dtype=np.uint8)
            arrays.write(Path(folder) / "pixels.zarr", squares)
            pixels, rows = arrays.open(Path(folder) / "pixels.zarr"), np.arange(count)
            for precision in PRECISIONS:
                ours = seconds(lambda: embed(model, pixels, rows, size, precision, "features"), 1)  # noqa: B023
                peer = seconds(lambda: images.forward(model, batch, passes, precision), 1)  # noqa: B023
                row = {"what": f"features in {precision}, batches of {size}", "rate": count / ours, "unit": "images/s"}
                if precision == "bfloat16":
                    row |= {"limit": count * forward.get_total_flops() / ours / rate}
                yield row | {"peer": "bare forward", "ratio": peer / ours}
            if where.type == "cuda":
                torch.cuda.reset_peak_memory_stats()
            ours = seconds(lambda: images.training(adapted, adaptors, pixels, rows, size), 1)  # noqa: B023
        memory = torch.cuda.max_memory_allocated() / 2**30 if where.type == "cuda" else float("nan")
        peer = seconds(lambda: images.bare_training(adapted, batch, passes), 1)  # noqa: B023
        row = {"what": f"training of adaptors, batches of {size}", "rate": count / ours, "unit": "images/s"}
        row |= {"limit": count * step.get_total_flops() / ours / rate, "memory": memory}
        yield row | {"peer": "bare forward + backward", "ratio": peer / ours}


def bare_lloyd(x: torch.Tensor, centroids: torch.Tensor, iterations: int) -> torch.Tensor:
    """Lloyd's iterations as one writes them in torch: each row against each centroid, every time."""
    for _ in range(iterations):
        half = centroids.square().sum(1) / 2
        labels = torch.cat([(part @ centroids.T - half).argmax(1) for part in x.split(8192)])
        sums = torch.zeros_like(centroids).index_add_(0, labels, x)
        centroids = sums / torch.bincount(labels, minlength=len(centroids)).clamp(min=1)[:, None]
    return labels


def vectors(where: torch.device, dry: bool) -> Iterator[Row]:
    """Seeds, k-means for the paper's eight k beside bare torch and faiss, and neighbour graphs beside faiss's."""
    n = 2_000 if dry else PAPER
    x, sizes = hierarchical_mixture(n), scaled(n)
    gpus = faiss.get_num_gpus()
    there = torch.from_numpy(x).to(where)
    start = time.perf_counter()
    seeds = seed_order(there, max(sizes), 0)
    yield {"what": f"seeds of {max(sizes):,} clusters, n = {n:,}", "rate": time.perf_counter() - start, "unit": "s"}
    spent = by_faiss = 0.0
    for k in sizes:
        chosen = there[torch.from_numpy(seeds.order[:k]).to(where)]
        begin = time.perf_counter()
        clusters = lloyd(there, chosen, nearest_seeds(seeds.records, k, n), 300)
        ours = time.perf_counter() - begin
        spent += ours
        peer = seconds(lambda: bare_lloyd(there, chosen, clusters.iterations), 1)  # noqa: B023
        row = {"what": f"Lloyd, k = {k:,}, {clusters.iterations} iterations", "rate": ours, "unit": "s"}
        yield row | {"peer": "bare torch, as many", "ratio": peer / ours}
        every = {"max_points_per_centroid": n, "min_points_per_centroid": 1}
        kmeans_of_faiss = faiss.Kmeans(x.shape[1], k, niter=clusters.iterations, gpu=bool(gpus), **every)
        begin = time.perf_counter()
        kmeans_of_faiss.train(x, init_centroids=chosen.cpu().numpy())
        by_faiss += time.perf_counter() - begin
    row = {"what": f"Lloyd, all {len(sizes)} k", "rate": spent, "unit": "s"}
    if gpus or dry:
        row |= {"peer": "faiss.Kmeans, same seeds, as many", "ratio": by_faiss / spent}
    yield row
    for count in (n,) if dry else (n, 1_000_000):
        rows = hierarchical_mixture(count)
        spent = seconds(lambda: nearest(rows, rows, 5, exclude_self=True), 1)  # noqa: B023
        yield {"what": f"neighbour graph, n = {count:,}, exact", "rate": spent, "unit": "s"}
        if gpus or dry:
            search_alone = seconds(lambda: search(rows, rows, 6), 1)  # noqa: B023
            peer = seconds(lambda: search_by_torch(rows, rows, 6, where), 1)  # noqa: B023
            row = {"what": f"its search by faiss, n = {count:,}", "rate": search_alone, "unit": "s"}
            yield row | {"peer": "by torch", "ratio": peer / search_alone}
    start = time.perf_counter()
    found = nearest_others(rows, 5, "ivf", 0.95, metric="inner_product")
    what = f"neighbour graph, n = {count:,}, ivf, recall {found.recall:.3f}"
    spent, exact = time.perf_counter() - start, spent
    yield {"what": what, "rate": spent, "unit": "s", "peer": "exact", "ratio": exact / spent}


def agreement(where: torch.device, dry: bool) -> Iterator[Row]:
    """Features in each precision, and clusters, beside those of a CPU in float32."""
    model, n = load(Path(__file__).parents[1] / "encoders/vit48"), 200 if dry else 2_000
    side = model.config.size
    views = functional.interpolate(torch.rand(n, 3, 6, 6), (side, side), mode="bicubic").clamp(0, 1)
    with torch.inference_mode():
        expected = model(views)
        for precision in PRECISIONS:
            with device.autocast(where, precision):
                given = model.to(where)(views.to(where)).cpu()
            least = (expected * given).sum(1).min().item()
            yield {"what": f"features in {precision}: least cosine to a CPU's", "rate": least, "unit": "cosine"}
            pairs = (nearest(x.numpy(), x.numpy(), 5, exclude_self=True)[1] for x in (expected, given))
            same = np.mean([np.isin(*pair).mean() for pair in zip(*pairs, strict=True)])
            yield {"what": f"features in {precision}: of 5 neighbours the same", "rate": float(same), "unit": "share"}
    ours, peer = (kmeans(expected.to(device), 50, 0) for device in (where, "cpu"))
    share = float((ours.labels == peer.labels).mean())
    yield {"what": "clusters of the same features: labels as a CPU's", "rate": share, "unit": "share"}


PARTS = {part.__name__: part for part in (agreement, encoder, vectors)}


def table(rows: list[Row], name: str, left_out: list[str]) -> str:
    """The part of docs/results/gpu.md between its two marks."""

    def shown(row: Row, key: str, form: str) -> str:
        value = row.get(key)
        return "" if value is None or value != value else format(value, form)

    lines = [f"{name}, torch {torch.__version__}.", ""]
    lines += ["| | | | share of the limit | against | ratio | GiB |", "|---|---:|---|---:|---|---:|---:|"]
    for row in rows:
        form = ",.0f" if row["rate"] >= 1000 else ".7f" if row["unit"] == "cosine" else ".3g"
        cells = [row["what"], shown(row, "rate", form), row["unit"], shown(row, "limit", ".0%"), row.get("peer", "")]
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
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            timer = Timer(max(1, end - time.monotonic()), process.kill)
            timer.start()
            for line in process.stdout:
                print(line, end="", flush=True)  # what is known stays, whatever ends this
                rows.append(json.loads(line))
            timer.cancel()
        if process.returncode:
            left_out.append(f"{part} ({'no time left' if process.returncode < 0 else 'failed'})")
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU, small sizes"
    text = table(rows, name, left_out)
    print(text)
    if not dry:
        before, _, rest = RESULTS.read_text(encoding="utf-8").partition(BEGIN)
        RESULTS.write_text(before + BEGIN + text + END + rest.partition(END)[2], encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dry", action="store_true", help="small sizes, on any machine")
    parser.add_argument("--part", choices=PARTS, help="print the rows of one part")
    arguments = parser.parse_args()
    if arguments.part:
        for row in PARTS[arguments.part](device.best(), arguments.dry):
            print(json.dumps(row), flush=True)
    else:
        main(arguments.dry)
