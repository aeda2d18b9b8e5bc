"""Model folders from a stranger: a small real one with one thing about it changed.

Each is loaded in a process of its own with little memory and little time. It may open no file outside its folder and
the installed packages, ask nothing of the network, start nothing, and unpickle nothing. Where it is not refused, what
it makes of an image has to be what it should be: a finite vector of unit length.
"""

import io
import json
import math
import os
import pickle
import random
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks.hostile._contained import contained
from benchmarks.hostile.outcome import Outcome
from stages.core.encoder import model
from stages.core.encoder.config import Config
from stages.core.encoder.model import Model, load, save

COUNT = 400
SECONDS = 20
MEMORY = 2**30  # above what the process has, and far above what the model needs
SECRET = "/etc/passwd"
WEIGHTS = "weights.safetensors"
CONFIG = Config(
    architecture="vit_tiny_patch16_224",
    kwargs={"img_size": 32, "patch_size": 16, "depth": 2, "embed_dim": 24, "num_heads": 2},
    size=32,
    resize=32,
    mean=(0.5, 0.5, 0.5),
    std=(0.5, 0.5, 0.5),
    adaptors={"names": ["k4", "k8"], "width": 4, "fusion": "attention"},
    reduced=8,
)
Change = Callable[[Path], object]


def run(count: int, seed: int, folder: Path) -> Iterator[Outcome]:
    """The fixed attacks in turn, then the weights' header with random damage."""
    rng = random.Random(seed)
    honest = folder / "honest"
    honest.mkdir()
    torch.manual_seed(0)
    save(Model(CONFIG), honest)
    load(honest)  # what is imported late is imported now, and not taken for a file that the model opened
    fixed = list(attacks())
    rng.shuffle(fixed)
    for number in range(count):
        case, change = fixed[number] if number < len(fixed) else damage(rng, number)
        hostile = folder / str(number)
        shutil.copytree(honest, hostile)
        change(hostile)
        yield judge(case, hostile)
        shutil.rmtree(hostile)


def judge(case: str, folder: Path) -> Outcome:
    ended = contained(lambda: use(folder), folder, seconds=SECONDS, memory=MEMORY)
    if ended.escapes:
        return Outcome(case, "escape", "; ".join(ended.escapes)[:300])
    if ended.kind == "killed":
        return Outcome(case, "hang", ended.said)
    if ended.kind == "done":
        return Outcome(case, "fine" if case.startswith("harmless") else "silent", "loaded")
    if ended.kind != "ValueError" or str(folder) not in ended.said:
        return Outcome(case, "raw", f"{ended.kind}: {ended.said}"[:300])
    return Outcome(case, "clear", ended.said[:200])


def use(folder: Path) -> None:
    torch.set_num_threads(1)  # the threads of the process that was forked are not here
    loaded = model.load(folder)
    embedding = loaded(torch.zeros(1, 3, loaded.config.size, loaded.config.size, dtype=torch.uint8))
    assert torch.isfinite(embedding).all() and abs(float(embedding.norm()) - 1) < 1e-3, "no unit vector"


def configured(edit: Callable[[dict], object]) -> Change:
    """The folder's config.json with a change."""

    def change(folder: Path) -> None:
        file = folder / "config.json"
        config = json.loads(file.read_text())
        edit(config)
        file.write_text(json.dumps(config))

    return change


def put(value: Any, *place: str | int) -> Change:
    def edit(config: dict) -> None:
        for key in place[:-1]:
            config = config[key]
        config[place[-1]] = value

    return configured(edit)


def replaced(name: str, make: Callable[[Path], object]) -> Change:
    """Something else in the place of one of the two files."""

    def change(folder: Path) -> None:
        (folder / name).unlink()
        make(folder / name)

    return change


def content(value: bytes) -> Callable[[Path], object]:
    return lambda file: file.write_bytes(value)


def link(target: str) -> Callable[[Path], object]:
    return lambda file: file.symlink_to(target)


class Bomb:
    """What is run where it is unpickled."""

    def __reduce__(self) -> tuple:
        return os.system, (f"touch {tempfile.gettempdir()}/polygrain-was-here",)


def torch_file() -> bytes:
    stream = io.BytesIO()
    torch.save({"x": torch.zeros(2)}, stream)
    return stream.getvalue()


def header(edit: Callable[[dict], object] | None = None, length: int | None = None, body: int | None = None) -> Change:
    """The weights with another header, a length that lies, or as many bytes behind it."""

    def change(folder: Path) -> None:
        file = folder / WEIGHTS
        raw = file.read_bytes()
        size = struct.unpack("<Q", raw[:8])[0]
        told, data = json.loads(raw[8 : 8 + size]), raw[8 + size :]
        if edit is not None:
            edit(told)
        text = json.dumps(told).encode()
        data = data if body is None else data[:body].ljust(body, b"\0")
        file.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)

    return change


def first(told: dict) -> dict:
    return told[sorted(name for name in told if name != "__metadata__")[0]]


def attacks() -> Iterator[tuple[str, Change]]:
    for name in (
        "hf-hub:timm/resnet18",
        "hf_hub:timm/resnet18",
        "HF-HUB:timm/vit",
        "local-dir:/etc",
        "local-dir:.",
        "/etc/passwd",
        "../../x",
        "timm/resnet18.a1_in1k",
        "resnet18.hf-hub:x",
        "resnet18:x",
        "file:///etc/passwd",
        "http://127.0.0.1/x",
        "resnet18.no_such_tag",
        "",
        " ",
        "x" * 10**5,
        "résnet18",
        "resnet18\0",
        "resnet18\n",
        "vgg11",
        "alexnet",
        "resnet50",
        "levit_128",
        "swin_tiny_patch4_window7_224",
        "convnext_tiny",
        "vit_7b_patch16_dinov3.lvd1689m",
        "eva_giant_patch14_224",
        "test_vit",
        "resnetv2_152x4_bit.goog_in21k",
        "os.system",
        "__import__('os')",
        "vit_tiny_patch16_224.",
        ".",
        "*",
    ):
        yield f"architecture {name[:40]!r}", put(name, "architecture")
    for name, value in {
        "checkpoint_path": SECRET,
        "pretrained": True,
        "pretrained_cfg": SECRET,
        "pretrained_cfg_overlay": "x",
        "features_only": True,
        "scriptable": True,
        "exportable": True,
        "cache_dir": tempfile.gettempdir(),
        "no_jit": True,
        "kwargs_filter": "x",
        "out_indices": 3,
        "in_chans": 10**9,
        "num_classes": 10**9,
        "weight_init": "jax",
        "act_layer": "x",
        "norm_layer": "os.system",
        "pretrained_strict": False,
        "block_fn": "eval",
        "embed_layer": "exec",
        "": 1,
        "__class__": "x",
        "self": 1,
        "hf_hub_id": "x/y",
    }.items():
        yield f"argument {name!r}", put(value, "kwargs", name)
    wild = (0, -1, 7, 10**9, 10**18, 10**30, 10**400, 0.5, True, None, "x", [], {}, math.nan, math.inf)
    for name in ("img_size", "patch_size", "depth", "embed_dim", "num_heads"):
        for value in wild:
            yield f"argument {name} = {str(value)[:20]}", put(value, "kwargs", name)
    for name in ("size", "resize", "scaled", "blocks", "reduced"):
        for value in wild:
            if value is not None or name in ("size", "resize"):
                yield f"{name} = {str(value)[:20]}", put(value, name)
    for name in ("mean", "std"):
        for value in (0, -1, 1e-30, 10**9, 1e308, math.nan, math.inf, -math.inf, None, "x", True, [], 10**400):
            if name == "std" or value not in (0, 1e-30):
                yield f"{name} with {str(value)[:20]}", put(value, name, 1)
        for value in ([], [0.5], [0.5] * 4, [0.5] * 10**5, "x", None, 0.5, {}):
            yield f"{name} = {str(value)[:20]}", put(value, name)
    for name, value in {
        "width": 10**9,
        "names": ["k4"] * 10**5,
        "fusion": "x",
        "attention": {"pooling": "x"},
    }.items():
        yield f"adaptors.{name}", put(value, "adaptors", name)
    for value in (0, -1, 10**30, math.nan, "x", None):
        yield f"adaptors.width = {value}", put(value, "adaptors", "width")
    for value in ([], [""], ["a/b"], [1], "k4", ["k4"], ["k4", "k8", "k16"], [None]):
        yield f"adaptors.names = {value}", put(value, "adaptors", "names")
    yield "no adaptors", put(None, "adaptors")
    yield "an unknown key", put(1, "no_such_key")
    yield "a key less", configured(lambda config: config.pop("std"))
    for name in ("config.json", WEIGHTS):
        yield f"{name} is gone", lambda folder, name=name: (folder / name).unlink()
        yield f"{name} is a pipe", replaced(name, os.mkfifo)
        yield f"{name} is a folder", replaced(name, Path.mkdir)
        for target in (SECRET, "/dev/zero", "/dev/random", "/proc/self/mem", "no/where", "../honest/" + name, name):
            yield f"{name} is a link to {target}", replaced(name, link(target))
        for told, value in {
            "nothing": b"",
            "noise": bytes(range(256)) * 40,
            "pickle": pickle.dumps(Bomb()),
            "torch file": torch_file(),
            "html": b"<html>404</html>",
            "zip": b"PK\3\4" + bytes(99),
            "NULs": bytes(10_000),
            "text": b"x" * 10_000,
            "list": b"[]",
            "number": b"3",
            "open": b"{",
        }.items():
            yield f"{name} holds {told}", replaced(name, content(value))
    for told, value in {
        "deep": b"[" * 10**5,
        "deep mappings": b'{"a":' * 10**5,
        "UTF-16": json.dumps(CONFIG.model_dump()).encode("utf-16"),
        "a mark": b"\xef\xbb\xbf{}",
        "latin-1": b'{"architecture": "\xe9"}',
        "megabytes": b" " * 2**22 + b"{}",
        "NaN": b"NaN",
        "long number": b'{"size": ' + b"9" * 10**5 + b"}",
        "exponent": b'{"size": 1e999999999}',
    }.items():
        yield f"config.json is {told}", replaced("config.json", content(value))
    for length in (0, 1, 7, 2**31, 2**32, 2**62, 2**63, 2**64 - 1, 100_000_001):
        yield f"header of {length} bytes", header(length=length)
    for size in (0, 1, 100, 10**6):
        yield f"{size} bytes of values", header(body=size)
    for told, edit in {
        "shape of 10^18": lambda t: first(t).update(shape=[10**9, 10**9]),
        "shape below 0": lambda t: first(t).update(shape=[-1]),
        "shape of text": lambda t: first(t).update(shape=["x"]),
        "shape that is deep": lambda t: first(t).update(shape=[1] * 10_000),
        "no shape": lambda t: first(t).pop("shape"),
        "unknown type": lambda t: first(t).update(dtype="OBJECT"),
        "other type": lambda t: first(t).update(dtype="I8"),
        "offsets beyond": lambda t: first(t).update(data_offsets=[0, 2**62]),
        "offsets turned": lambda t: first(t).update(data_offsets=[8, 0]),
        "offsets below 0": lambda t: first(t).update(data_offsets=[-8, 0]),
        "a tensor less": lambda t: t.pop(sorted(t)[-1]),
        "a hundred thousand tensors": lambda t: t.update(
            {f"t{i}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(10**5)}
        ),
        "a tensor named to leave": lambda t: t.update({"../x": t.pop(sorted(t)[-1])}),
        "metadata of a number": lambda t: t.update(__metadata__={"x": 3}),
    }.items():
        yield told, header(edit)
    yield "ten terabytes of weights", lambda folder: os.truncate(folder / WEIGHTS, 10 * 2**40)
    yield "harmless: another file beside", lambda folder: (folder / "pickle.pkl").write_bytes(pickle.dumps(Bomb()))


def damage(rng: random.Random, number: int) -> tuple[str, Change]:
    """The header of the weights or the config cut, or with bytes changed: no tensor's values, which have a checksum."""
    name, kind, at = rng.choice(["config.json", WEIGHTS]), rng.choice(["cut", "byte"]), rng.random()

    def change(folder: Path) -> None:
        raw = bytearray((folder / name).read_bytes())
        end = len(raw) if name == "config.json" else 8 + struct.unpack("<Q", raw[:8])[0]
        place = int(at * (end - 2))
        if kind == "cut":
            del raw[place:]
        else:
            raw[place] = 0x7F
        (folder / name).write_bytes(raw)

    return f"{name}: {kind} at {at:.3f} ({number})", change
