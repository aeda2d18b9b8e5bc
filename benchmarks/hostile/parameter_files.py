"""params.yaml and a profile's values.yaml as files that nobody would write: what kind of file, which bytes, what shape.

Each stands in a small project, and what the Makefile asks before a run is asked of it in a process of its own. That has
to end within two seconds (of the processor; the machine may be busy), with an error that names the file.
"""

import builtins
import importlib
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.hostile._contained import contained
from benchmarks.hostile.outcome import Outcome
from stages.core.runner.command import STAGES, prepare

COUNT = 240
ROOT = Path(__file__).parents[2]
SECONDS = 2.0
Write = Callable[[Path], object]
HONEST = (ROOT / "params.yaml").read_text(encoding="utf-8")


def run(count: int, seed: int, folder: Path) -> Iterator[Outcome]:
    """The fixed attacks in turn, as the root's file and as a profile's; then the honest file with random damage."""
    for stage in STAGES.glob("[!_]*.py"):
        importlib.import_module(f"stages.{stage.stem}")  # else each case would start all libraries anew
    rng = random.Random(seed)
    fixed = [(f"{kind}: {name}", kind, write) for name, write in attacks() for kind in ("params.yaml", "values.yaml")]
    rng.shuffle(fixed)
    for number in range(count):
        if number < len(fixed):
            case, kind, write = fixed[number]
        else:
            kind = rng.choice(["params.yaml", "values.yaml"])
            case, write = damage(rng)
            case = f"{kind}: {case} ({number})"
        yield judge(case, kind, write, folder / str(number))


def text(content: str | bytes) -> Write:
    return lambda file: file.write_bytes(content.encode() if isinstance(content, str) else content)


def link(target: str) -> Write:
    return lambda file: file.symlink_to(target)


def huge(file: Path) -> None:
    """A terabyte of nothing, which takes no room on the disk."""
    with file.open("wb") as stream:
        stream.truncate(2**40)


def nested(opening: str, closing: str, depth: int) -> str:
    return f"a: {opening * depth}{closing * depth}\n"


def bomb(kind: str, width: int, depth: int) -> str:
    """Each line stands for `width` times the one before."""
    lines = ["a0: &a0 [x]" if kind == "list" else "a0: &a0 {k: x}"]
    for level in range(1, depth):
        inner = ", ".join(f"*a{level - 1}" if kind == "list" else f"k{i}: *a{level - 1}" for i in range(width))
        lines.append(f"a{level}: &a{level} " + (f"[{inner}]" if kind == "list" else f"{{{inner}}}"))
    return "\n".join(lines) + "\n"


def attacks() -> Iterator[tuple[str, Write]]:
    yield "a pipe", os.mkfifo
    yield "a folder", Path.mkdir
    for target in ("/dev/zero", "/dev/full", "/dev/random", "/dev/tty", "/proc/self/mem", "/", "no/where"):
        yield f"a link to {target}", link(target)
    yield "a link to itself", lambda file: file.symlink_to(file.name)
    yield "a terabyte", huge
    yield "a megabyte of comments", text("# " + "x" * 2**20)
    yield "a line of a megabyte", text("a: " + "x" * 2**20)
    for encoding in ("utf-16", "utf-16-le", "utf-32", "latin-1", "utf-8-sig", "cp037"):
        yield f"in {encoding}", text(("root: é\n" + HONEST.split("\n", 3)[3][:2000]).encode(encoding, "replace"))
    for name, content in {
        "NUL": b"root: .\n\0",
        "half a letter": b"root: \xc3",
        "surrogate": b"root: \xed\xa0\x80",
        "noise": os.urandom(4096),
        "escape": b"root: \x1b[2J",
        "safetensors": b"\x08\0\0\0\0\0\0\0{}      ",
        "gzip": b"\x1f\x8b\x08\0" + bytes(99),
        "pickle": b"\x80\x04\x95",
        "html": b"<html><body>404</body></html>",
        "json list": b"[1, 2]",
        "number": b"3",
        "text": b"nothing",
        "two documents": b"a: 1\n---\nb: 2\n",
        "tab": b"a:\n\t- b\n",
        "open": b"a: [",
        "directive": b"%YAML 9.9\n---\na: 1\n",
        "ends": b"...\n...\n",
        "percent": b"%\n",
        "at": b"@a: 1",
        "backtick": b"`",
    }.items():
        yield name, text(content)
    for opening, closing in (
        ("[", "]"),
        ("{a: ", "}"),
        ("- ", ""),
        ("? ", ""),
        ("[", ""),
        ("{", ""),
        ("!new {a: ", "}"),
    ):
        for depth in (30, 1000, 50_000):
            yield f"{depth} times {opening!r}", text(nested(opening, closing, depth))
    yield "indented deeper and deeper", text("".join(" " * level + "a:\n" for level in range(400)))
    for kind in ("list", "map"):
        for width, depth in ((9, 9), (2, 60), (100, 5), (1, 2000), (60, 12)):
            yield f"a bomb of {kind}s, {width} to the {depth}", text(bomb(kind, width, depth))
    yield (
        "a bomb of merges",
        text(
            "a: &a {x: 1}\n" + "".join(f"m{i}: &m{i} {{<<: [{', '.join(['*a'] * 300)}], y: 1}}\n" for i in range(100))
        ),
    )
    for name, content in {
        "itself in a list": "a: &a [*a]",
        "itself in a mapping": "a: &a {b: *a}",
        "itself as key": "&a ? *a : 1",
        "itself merged": "a: &a {<<: *a}",
        "deep itself": "a: &a {b: {c: [{d: *a}]}}",
        "unknown alias": "a: *b",
        "the whole": "&a\nb: *a",
        "merge of a list": "<<: [1, 2]",
        "merge of text": "a: {<<: x}",
        "merge of null": "<<: null",
    }.items():
        yield name, text(content + "\n")
    for key in (
        "1",
        "1.5",
        "true",
        "null",
        "~",
        "2001-01-01",
        "[1]",
        "{a: 1}",
        "? [a]\n",
        ".nan",
        "!!binary aGk=",
        "0x1F",
        '"\\0"',
        '"\\e[2J"',
        '"a\\nb"',
        "x" * 5000,
        '"\\u202e"',
        "!!python/name:os.system",
        "&a 1",
        "<<",
    ):
        yield f"a key {key[:30]!r}", text(HONEST + f"\n{key}: 1\n")
        yield f"a key {key[:30]!r} within", text(f"images: {{{key}: 1}}\n")
    for value in (
        "2001-01-01",
        "!!binary aGk=",
        "!!set {a, b}",
        "!!omap [a: 1]",
        "!!python/object:os.system x",
        "!x y",
        "!!int x",
        "9" * 5000,
        "0x" + "F" * 5000,
        "!!float x",
        "!!timestamp x",
        "!!python/tuple [1]",
        "!!bool x",
        "1e999999",
        "2001-99-99",
        "!!python/object/apply:os.system [touch P]",
        "!new 3",
        "0o9",
        "1__2_",
        "!!null x",
    ):
        yield f"a value {value[:40]!r}", text(f"images: {{side: {value}}}\n")
        yield f"a value {value[:40]!r} at the end", text(HONEST + f"\nnobody: {value}\n")
    yield "a key twice", text(HONEST + "\nseed: 1\n")
    yield "a key twice within", text("images: {side: 1, side: 2}\n")
    yield "a key twice by merging", text("a: &a {x: 1}\nimages: {<<: *a, <<: *a}\n")
    yield "ten thousand keys", text("".join(f"k{i}: 1\n" for i in range(10_000)))
    yield "fifty thousand commas", text("a: [" + "," * 50_000 + "]")
    yield "a hundred thousand dashes", text("- " * 100_000)
    yield "a hundred thousand anchors", text("".join(f"- &a{i} 1\n" for i in range(20_000)))
    yield "from a list", text("from: [a]\n")
    yield "from elsewhere", text("from: ../../../etc\n")
    yield "from itself", text("from: mine\n")


def damage(rng: random.Random) -> tuple[str, Write]:
    """The honest file cut, with bytes changed, or with a part of it put elsewhere."""
    content = bytearray(HONEST.encode())
    start, length = rng.randrange(len(content)), rng.randrange(1, 400)
    kind = rng.choice(["cut", "bytes", "moved", "indent"])
    if kind == "cut":
        del content[start:]
        content += b"\n? "
    elif kind == "bytes":
        for _ in range(20):
            content[rng.randrange(len(content))] = rng.choice(b"\0\xff{}[]&*!|>'\"%@`\t:")
    elif kind == "moved":
        part = content[start : start + length]
        content[rng.randrange(len(content)) :] = part + b"\n}{"
    else:
        content = bytearray(b"\n".join(b" " * rng.randrange(4) + line for line in content.split(b"\n")))
    return f"{kind} at {start}", text(bytes(content))


def judge(case: str, kind: str, write: Write, folder: Path) -> Outcome:
    """What the check says of the file, and how long it takes; a profile is `mine`, over the honest root."""
    profile = folder / "profiles/mine"
    profile.mkdir(parents=True)
    place = folder if kind == "params.yaml" else profile
    for path in ("requirements.lock", "encoders"):
        (folder / path).symlink_to(ROOT / path)
    if place == profile:
        shutil.copy(ROOT / "params.yaml", folder)
    write(place / kind)
    ended = contained(lambda: (os.chdir(place), prepare(Path("params.yaml"))), folder, Path("/proc"), seconds=10)
    shutil.rmtree(folder)
    if ended.kind == "killed":
        return Outcome(case, "hang", ended.said)
    if ended.escapes:
        return Outcome(case, "escape", "; ".join(ended.escapes))
    if ended.kind == "done":
        return Outcome(case, "silent", "accepted")
    if not issubclass(getattr(builtins, ended.kind, Exception), ValueError | OSError):
        return Outcome(case, "raw", f"{ended.kind}: {ended.said}"[:300])
    if kind not in ended.said:
        return Outcome(case, "raw", f"does not name the file: {ended.said[:300]}")
    return Outcome(case, "hang" if ended.seconds > SECONDS else "clear", f"{ended.seconds:.1f} s: {ended.said[:200]}")
