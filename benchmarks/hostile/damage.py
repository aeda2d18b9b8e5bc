"""Every kind of file that a finished graph hands on, damaged, and read by the functions that the next stage uses.

A part goes through DVC: the file is changed in place, with its old size and times, as happens where the working copy
and the cache are one file, so that DVC believes it; the stage that reads it is made to run again.
"""

import dataclasses
import hashlib
import os
import random
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from ruamel.yaml import YAML
from safetensors.torch import load_file, save_file
from torch import nn

from benchmarks.hostile.outcome import Outcome
from stages import gsp_ensemble, gsp_report, mpcl_report, report, tll_report
from stages.core.encoder import model
from stages.core.grappa.report import charts, chosen, neighbours, queries, scores
from stages.core.gsp.folds.images import read_images
from stages.core.mpcl import trainable
from stages.core.store import arrays
from stages.core.store.collection import read_table
from stages.core.store.reading import read_json
from stages.core.store.tables import read_parquet
from stages.core.store.tensors import read_tensors
from stages.core.tll.adaptation import model as analogies
from stages.core.tll.adaptation import reduction, results
from stages.core.tll.extractors import layers
from stages.core.training.history import read_history
from tests.helpers.finished import finished_project
from tests.helpers.project import dvc, outputs

COUNT = 340
SECONDS = 60
THROUGH_DVC = 28  # one of so many

Read = Callable[[Path], object]
# Which function a stage reads a file with, by the file's path below data/; the first that fits.
READERS: tuple[tuple[str, Read], ...] = (
    (r".*\.zarr/.*", lambda file: arrays.open(array_of(file))[:]),
    (r"images/[^/]+/table\.parquet", lambda file: (read_table(file.parent), read_images(file.parent))),
    (r"images/[^/]+/rejected\.csv", lambda file: report.read_task(file.parents[1], file.parent.name)),
    (r"mpcl_encoder/.*(weights\.safetensors|config\.json)", lambda file: trainable.load(file.parent)),
    (r"tll_features/.*(weights\.safetensors|config\.json)", lambda file: layers.restore(file.parent)),
    (r"tll_adaptation/.*(weights\.safetensors|config\.json)", lambda file: analogies.load(file.parent)),
    (
        r"(encoder|adaptor|fusion|distillation|choice)/(.*/)?(weights\.safetensors|config\.json)",
        lambda file: model.load(file.parent),
    ),
    (r"(adaptor|fusion|mpcl_encoder)/[^/]+/history\.csv", lambda file: read_history(file.parent)),
    (r"evaluation/[^/]+/(metrics|whitened|shared|shared_whitened)\.json", scores.read_metrics),
    (r"evaluation/[^/]+/random\.json", read_json),
    (r"evaluation/[^/]+/queries\.parquet", lambda file: queries.read_queries(file.parents[1], file.parent.name)),
    (
        r"evaluation/[^/]+/attention\.parquet",
        lambda file: charts.attention_maps(file.parents[1], [file.parent.name], ["shapes"]),
    ),
    (r"choice/(choice\.json|criterion\.csv)", lambda file: chosen.read(file.parent)),
    (r"choice/neighbours\.parquet", lambda file: neighbours.read(file.parent)),
    (r"tll_pairs/[^/]+/pairs\.parquet", lambda file: tll_report.read_names(file.parent)),
    (r"tll_pairs/[^/]+/rejected\.csv", tll_report.read_csv),
    (r"tll_pca/[^/]+/pca\.safetensors", reduction.load),
    (r"tll_adaptation/[^/]+/(recall\.parquet|ranks\.parquet|history\.csv)", lambda file: results.read(file.parent)),
    (r"tll_adaptation/[^/]+/nearest\.parquet", read_parquet),
    (r"gsp_(folds|ensemble)/[^/]+/pictures\.safetensors", read_tensors),
    (r"gsp_folds/[^/]+/history\.csv", lambda file: gsp_ensemble.join_histories(file.parents[1], [file.parent.name])),
    (r"gsp_ensemble/[^/]+/history\.csv", gsp_report.read_csv),
    (r"mpcl_probe/[^/]+/metrics\.json", lambda file: mpcl_report.read_probe(file.parent)),
    (r"(tll_adaptation|gsp_folds|gsp_ensemble)/[^/]+/(config|summary|metrics|transfer|pictures)\.json", read_json),
)


def array_of(file: Path) -> Path:
    return next(folder for folder in file.parents if folder.suffix == ".zarr")


def reader_of(path: str) -> Read | None:
    return next((read for pattern, read in READERS if re.fullmatch(pattern, path)), None)


def kind_of(path: str) -> str:
    """What is alike in files of one kind: their stage and name; of stored arrays the array and its part."""
    part = "shard" if "/c/" in path else Path(path).name
    array = next((piece for piece in path.split("/") if piece.endswith(".zarr")), "")
    return f"{path.split('/')[0]} {array} {part}"


def printed(value: object) -> str:
    """A text that is another for every other value."""
    if isinstance(value, nn.Module):
        value = [repr(value.config), {name: tensor.detach().numpy() for name, tensor in value.state_dict().items()}]
    if isinstance(value, pa.Table):
        value = value.to_pydict()
    if isinstance(value, torch.Tensor):
        value = value.numpy()
    if isinstance(value, np.ndarray) and value.dtype != object:
        return f"{value.dtype} {value.shape} {hashlib.sha256(np.ascontiguousarray(value).data).hexdigest()}"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = vars(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {printed(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple | np.ndarray):
        return "[" + ", ".join(map(printed, value)) + "]"
    return repr(value)


def flip(rng: random.Random, content: bytes) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.choice([1, 1, 1, 5])):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def digit(rng: random.Random, content: bytes) -> bytes:
    """Another digit somewhere; a text stays one that can be read."""
    places = [match.start() for match in re.finditer(rb"[0-9]", content)]
    if not places:
        return flip(rng, content)
    place = rng.choice(places)
    return content[:place] + b"%d" % ((int(content[place : place + 1]) + rng.randint(1, 9)) % 10) + content[place + 1 :]


def zeros(rng: random.Random, content: bytes) -> bytes:
    start, stop = sorted((rng.randrange(len(content)), rng.randrange(len(content) + 1)))
    return content[:start] + bytes(stop - start) + content[stop:]


BYTES: dict[str, Callable[[random.Random, bytes], bytes]] = {
    "flipped": flip,
    "another digit": digit,
    "zeros within": zeros,
    "cut": lambda rng, content: content[: rng.randrange(len(content))],
    "cut by a line": lambda _, content: content[: max(1, content.rstrip(b"\n").rfind(b"\n") + 1)],
    "longer": lambda rng, content: content + rng.randbytes(rng.randint(1, 50)),
    "empty": lambda *_: b"",
    "noise": lambda rng, content: rng.randbytes(len(content)),
}
FILES = ("gone", "a folder", "a dead link", "another's", "rewritten", "NaN")


def rewrite(rng: random.Random, file: Path, nan: bool) -> None:
    """A file in good order that says something else, written with the usual library, or with NaN in it."""
    if file.suffix == ".safetensors":
        tensors = load_file(file)
        name = rng.choice([name for name, tensor in tensors.items() if tensor.numel()])
        tensors[name] = tensors[name].clone()
        floats = tensors[name].is_floating_point()
        tensors[name].view(-1)[rng.randrange(tensors[name].numel())] = float("nan") if nan and floats else 7
        save_file(tensors, file)
    elif file.suffix == ".parquet":
        table = pq.read_table(file)
        pq.write_table(table.slice(1) if nan else table.take(list(range(len(table)))[::-1]), file)
    elif nan and file.suffix in (".json", ".csv"):
        file.write_bytes(re.sub(rb"\d+\.\d+", b"NaN", file.read_bytes(), count=1) + b" ")
    else:
        file.write_bytes(digit(rng, file.read_bytes()))


def hurt(rng: random.Random, file: Path, how: str, others: list[Path]) -> None:
    """Damages the file in a way of `BYTES` or `FILES`."""
    content = file.read_bytes()
    if how in BYTES:
        file.write_bytes(BYTES[how](rng, content))
    elif how in ("rewritten", "NaN"):
        rewrite(rng, file, how == "NaN")
    elif how == "another's":
        file.write_bytes(rng.choice(others).read_bytes() if others else flip(rng, content))
    else:
        file.unlink()
        if how == "a folder":
            file.mkdir()
        elif how == "a dead link":
            file.symlink_to("nowhere")


@contextmanager
def kept(file: Path) -> Iterator[None]:
    """What is done to the file in the block is undone behind it."""
    content = file.read_bytes()
    try:
        yield
    finally:
        shutil.rmtree(file) if file.is_dir() else file.unlink(missing_ok=True)
        file.write_bytes(content)


@contextmanager
def within(seconds: int) -> Iterator[None]:
    """TimeoutError where the block takes longer."""

    def late(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def read_directly(rng: random.Random, data: Path, path: str, how: str, others: list[Path]) -> Outcome:
    file, read, case = data / path, reader_of(path), f"{path}: {how}"
    whole = printed(read(file))
    with kept(file):
        hurt(rng, file, how, others)
        try:
            with within(SECONDS):
                met = printed(read(file))
        except TimeoutError:
            return Outcome(case, "hang")
        except ValueError as error:
            said = str(error)
            place = array_of(file) if ".zarr" in path else file.parent
            is_clear = str(place) in said and "\n" not in said and re.search("run|name a folder", said)
            return Outcome(case, "clear" if is_clear else "raw", said)
        except Exception as error:
            return Outcome(case, "raw", repr(error))
    return Outcome(case, "fine") if met == whole else Outcome(case, "silent", "read as something else")


def readers_of(project: Path) -> dict[str, str]:
    """For each stage that others read, one of them."""
    lock = YAML(typ="safe").load((project / "dvc.lock").read_text())["stages"]
    found: dict[str, str] = {}
    for name, stage in lock.items():
        for dep in stage.get("deps", []):
            found.setdefault(dep["path"], name)
    return found


def read_through_dvc(rng: random.Random, project: Path, path: str, copy: Path) -> Outcome:
    """The stage that reads the file runs again, and DVC takes the file for what it was."""
    case = f"{path}: flipped, through dvc repro"
    shutil.copytree(project, copy, symlinks=True)
    for place in project.rglob("*"):  # what DVC knows files by
        twin = copy / place.relative_to(project)
        if place.is_file() and not place.is_symlink():
            os.utime(twin, ns=(place.stat().st_atime_ns, place.stat().st_mtime_ns))
    dvc(copy, "status")  # it learns the inodes of the copy
    file, known = copy / "data" / path, outputs(copy)
    before = file.stat()
    with file.open("r+b") as stream:
        content = flip(rng, stream.read())
        stream.seek(0)
        stream.write(content)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    place = Path("data", path)
    stages = readers_of(copy)
    reader = next(stages[folder.as_posix()] for folder in place.parents if folder.as_posix() in stages)
    said = dvc(copy, "repro", "--single-item", "--force", reader, check=False)
    shutil_outputs = outputs(copy)
    shutil.rmtree(copy)
    if "Traceback" in said:
        return Outcome(case, "raw", said[-500:])
    if "error: " in said:
        (line, *_) = re.findall("error: .*", said)
        return Outcome(case, "clear" if place.parts[1] in line else "raw", line)
    return Outcome(case, "fine" if shutil_outputs == known else "silent", f"{reader} ran")


def run(count: int, seed: int, folder: Path) -> Iterator[Outcome]:
    rng = random.Random(seed)
    project = finished_project(folder / "project")
    data = project / "data"
    paths = sorted(file.relative_to(data).as_posix() for file in data.rglob("*") if file.is_file())
    kinds: dict[str, list[str]] = {}
    for path in paths:
        if reader_of(path) is not None:
            kinds.setdefault(kind_of(path), []).append(path)
    ways = [*BYTES, *FILES]
    turns = [(kind, how) for how in ways for kind in kinds]
    rng.shuffle(turns)
    through = [path for own in kinds.values() for path in own[:1]]
    for i in range(count):
        if i % THROUGH_DVC == 0:
            yield read_through_dvc(rng, project, rng.choice(through), folder / "copy")
            continue
        kind, how = turns[i % len(turns)]
        path = rng.choice(kinds[kind])
        others = [data / other for other in kinds[kind] if other != path]
        yield read_directly(rng, data, path, how, others)
