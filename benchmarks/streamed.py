"""Many small photographs from tars through `images` and `features` at 48 px: images/s, peak memory, and after a kill.

    python -m benchmarks.streamed [--images N] [--stored raw|webp|jpeg] [--full]

Without --full a tenth of the images that it has with it. `images` runs on a quarter of them too, so that memory that
grew with their number would show. Then it is killed in the middle and started again, and must end with the same bytes.
Peaks are of the process: `anonymous` is what it asked for itself, the rest are files that it maps.
"""

import argparse
import io
import json
import os
import resource
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from PIL import Image
from sklearn.datasets import load_sample_images

from benchmarks.measure import FULL
from polygrain.config.lists import Task
from polygrain.store.work import digest
from stages import features, images

ROOT = Path(__file__).resolve().parent.parent
IN_A_TAR = 10_000
CLASSES = 100
SIDE = 48


def photograph(number: int, photos: list[Image.Image]) -> bytes:
    """A crop of a photograph, 64 px, as JPEG; each number another one."""
    random = np.random.default_rng(number)
    photo, window = photos[number % len(photos)], int(random.integers(80, 400))
    left, top = (int(random.integers(0, length - window + 1)) for length in photo.size)
    sink = io.BytesIO()
    photo.resize((64, 64), Image.Resampling.BILINEAR, (left, top, left + window, top + window)).save(sink, "jpeg")
    return sink.getvalue()


def lay(folder: Path, count: int) -> None:
    """Tars of `IN_A_TAR` images with their labels."""
    folder.mkdir(parents=True)
    photos = [Image.fromarray(photo) for photo in load_sample_images().images]
    for start in range(0, count, IN_A_TAR):
        with tarfile.open(folder / f"{start // IN_A_TAR:05d}.tar", "w") as tar:
            for number in range(start, min(start + IN_A_TAR, count)):
                for suffix, content in (("jpg", photograph(number, photos)), ("cls", f"{number % CLASSES}".encode())):
                    member = tarfile.TarInfo(f"{number:09d}.{suffix}")
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))


def anonymous() -> int:
    """Bytes that this process holds and no file does."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


def child(what: str, raw: Path, output: Path, stored: str) -> None:
    """One stage, in a process of its own, which prints its seconds and peaks."""
    peak = [0]

    def watch() -> None:
        while True:
            peak[0] = max(peak[0], anonymous())
            time.sleep(0.1)

    threading.Thread(target=watch, daemon=True).start()
    begun, start = anonymous(), time.perf_counter()
    if what == "images":
        drawn = images.PerClass(digits=2, glyphs=2, patches=2)
        params = images.Params(
            side=SIDE, shape="crop", max_megapixels=50, per_class=drawn, places=2, stored=stored, quality=90,
            listed_shares=[], published_counts=True,
        )  # fmt: skip
        lists = SimpleNamespace(tasks={"t": Task(source="tars", path=str(raw))})
        said = images.main(raw, output, task="t", source="tars", params=params, lists=lists)
    else:
        params = features.Params(unit_length=True, dtype="float32", precision="float32", batch=128)
        said = features.main(raw, ROOT / "encoders/vit48", output, task="t", params=params)
    seconds = time.perf_counter() - start
    whole = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    sizes = {"at_the_start": begun, "anonymous": peak[0], "whole": whole}
    row = {"seconds": round(seconds, 1), "MiB": {name: size >> 20 for name, size in sizes.items()}}
    print(json.dumps(row | {"said": said}), flush=True)


def begin(what: str, raw: Path, output: Path, stored: str, where: Path) -> subprocess.Popen:
    words = [sys.executable, "-m", "benchmarks.streamed", "--child", what, str(raw), str(output), "--stored", stored]
    where.mkdir(exist_ok=True)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen(words, cwd=where, env=environment, stdout=subprocess.PIPE, text=True)


def run(claim: str, count: int, *words: object) -> float:
    started = begin(*words)
    said, _ = started.communicate()
    if started.returncode:
        raise SystemExit(f"{claim}: exit code {started.returncode}")
    row = json.loads(said.splitlines()[-1])
    rate = round(count / row["seconds"])
    print(json.dumps({"claim": claim, "images": count, "images_per_s": rate} | row), flush=True)
    return row["seconds"]


def tree(folder: Path) -> dict[str, str]:
    return {str(file.relative_to(folder)): digest(file) for file in sorted(folder.rglob("*")) if file.is_file()}


def main(count: int, stored: str) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        lay(root / "quarter", count // 4)
        lay(root / "all", count)
        run("images, a quarter", count // 4, "images", root / "quarter", root / "small", stored, root / "work")
        seconds = run("images", count, "images", root / "all", root / "whole", stored, root / "work")
        killed = begin("images", root / "all", root / "again", stored, root / "work")
        shards = len(list((root / "whole/pixels.zarr/c").iterdir()))
        while killed.poll() is None and len(list(root.glob("work/.work/images/*/pixels.zarr/c/*"))) <= shards // 2:
            time.sleep(0.05)
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        claim = "images, killed behind half of the shards and started again"
        left = run(claim, count, "images", root / "all", root / "again", stored, root / "work")
        same = tree(root / "whole") == tree(root / "again")
        size = sum(file.stat().st_size for file in (root / "whole/pixels.zarr").rglob("*") if file.is_file())
        row = {"same_bytes": same, "of_the_seconds": round(left / seconds, 2), "MB_of_squares": round(size / 1e6, 1)}
        print(json.dumps({"claim": "what was there before the kill is not done again", "stored": stored} | row))
        run("features, a quarter", count // 4, "features", root / "small", root / "few", stored, root / "work")
        run("features", count, "features", root / "whole", root / "features", stored, root / "work")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=100_000 if FULL else 10_000)
    parser.add_argument("--stored", choices=["raw", "webp", "jpeg"], default="raw")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--child", nargs=3, metavar=("STAGE", "RAW", "OUTPUT"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        child(asked.child[0], Path(asked.child[1]), Path(asked.child[2]), asked.stored)
    else:
        main(asked.images, asked.stored)
