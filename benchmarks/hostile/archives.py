"""Zip files that want out of their folder, want more than their size, or are damaged, unpacked by the stage's reader.

Whatever an archive does, nothing but its entries, byte for byte, may lie in the folder it is unpacked to, nothing may
lie elsewhere, and afterwards nothing may be left.
"""

import io
import os
import random
import stat
import struct
import tempfile
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.hostile.outcome import Outcome
from stages.core.sources import archive

COUNT = 240
SECONDS = 20.0
SLIPS = [
    "../x.png",
    "a/../../x.png",
    "/etc/x.png",
    "//x.png",
    "..\\x.png",
    "C:\\x.png",
    "C:/x.png",
    "a/..",
    "..",
    "a:b.png",
]
SLIPS += [
    "./../x.png",
    "a/./../../x.png",
    "\\\\host\\x.png",
    "../" * 40 + "tmp/x.png",
    "a\\..\\..\\x.png",
    "x.png:stream",
]
ODD = [
    "a\nb.png",
    "a\rb.png",
    "\x1b[2J.png",
    "\x7f.png",
    "\u202egnp.exe",
    "\U0001f600.png",
    "'\".png",
    "$(x).png",
    "-rf.png",
]
ODD += [
    "a" * 255 + ".png",
    "a/" * 3000 + "x.png",
    ("b" * 250 + "/") * 30 + "x.png",
    "é.png",
    "e\u0301.png",
    " .png",
    ".",
]
ODD += ["a\0b.png", "CON.png", "a//b.png", "./a.png", "a/./b.png", "", "\ufeff.png", "=1+1.png", "<b>.png", "a/"]


class Zip(NamedTuple):
    """An archive; `must_fail` where it may not be unpacked, whatever its entries."""

    case: str
    content: bytes
    must_fail: bool = False


def entry(name: str, mode: int = 0) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.filename = name  # as it is: the class would mend some
    info.create_system, info.external_attr = 3, mode << 16
    return info


def packed(*entries: tuple[zipfile.ZipInfo | str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    stream = io.BytesIO()
    with warnings.catch_warnings(action="ignore"), zipfile.ZipFile(stream, "w", method) as target:
        for name, content in entries:
            info = name if isinstance(name, zipfile.ZipInfo) else entry(name)
            info.compress_type = method
            target.writestr(info, content)
    return stream.getvalue()


def honest(rng: random.Random) -> list[tuple[str, bytes]]:
    """Entries that nothing is wrong with."""
    return [(f"{rng.choice('abc')}/{i}.png", rng.randbytes(rng.randint(1, 3000))) for i in range(rng.randint(1, 8))]


def mixed(rng: random.Random, *odd: tuple[zipfile.ZipInfo | str, bytes]) -> bytes:
    """The odd entries somewhere among honest ones."""
    entries: list = honest(rng)
    for one in odd:
        entries.insert(rng.randint(0, len(entries)), one)
    return packed(*entries, method=rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]))


def whole(rng: random.Random) -> Zip:
    method = rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
    return Zip(f"honest, method {method}", packed(*honest(rng), method=method))


def slip(rng: random.Random) -> Zip:
    name = rng.choice(SLIPS)
    return Zip(f"entry {name[:40]!r}", mixed(rng, (name, b"out")), must_fail=True)


def odd(rng: random.Random) -> Zip:
    name = rng.choice(ODD)
    return Zip(f"entry {name[:40]!r}", mixed(rng, (name, b"odd")))


def special(rng: random.Random) -> Zip:
    kind = rng.choice(["IFLNK", "IFIFO", "IFCHR", "IFBLK", "IFSOCK"])
    mode = getattr(stat, f"S_{kind}") | 0o777
    entries = [(entry("d", mode), b"/etc"), ("d/passwd.png", b"x")]
    return Zip(f"entry of kind {kind}", mixed(rng, *entries[: rng.randint(1, 2)]), must_fail=True)


def double(rng: random.Random) -> Zip:
    how = rng.choice(["same", "file and folder", "case"])
    second = {"same": "x/1.png", "file and folder": "x/1.png/2.png", "case": "X/1.PNG"}[how]
    # On a file system that tells cases apart, two that differ in it are two files.
    return Zip(f"a name twice: {how}", mixed(rng, ("x/1.png", b"1"), (second, b"22")), must_fail=how != "case")


def bomb(rng: random.Random) -> Zip:
    how = rng.choice(["zeros", "large", "many", "overlap", "nested"])
    if how == "zeros":
        return Zip("zeros", packed(("x.png", bytes(rng.randint(5, 60) * 10**6)), method=zipfile.ZIP_DEFLATED), True)
    if how == "large":
        made = bytearray(packed(("x.png", b"1")))
        place = made.rfind(b"PK\x01\x02")
        made[place + 20 : place + 28] = struct.pack("<II", 2**31, 2**31 + 5)
        return Zip("claims 2 GiB", bytes(made), True)
    if how == "many":
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w") as target:
            for i in range(2_000):
                target.writestr(f"{i}.png", b"")
        return Zip("2,000 empty entries", stream.getvalue())
    if how == "overlap":
        return Zip("entries that share their bytes", overlapping(rng), True)
    inner = packed(("x.png", bytes(10**7)), method=zipfile.ZIP_DEFLATED)
    return Zip("a bomb in a zip in a zip", mixed(rng, ("inner.zip", packed(("inner.zip", inner)))))


def overlapping(rng: random.Random) -> bytes:
    """Many central entries over one local file."""
    made = packed(("a.png", rng.randbytes(50_000)))
    start = made.find(b"PK\x01\x02")
    central = made[start : made.find(b"PK\x05\x06")]
    count = rng.randint(10, 200)
    names = [central.replace(b"a.png", b"%05d" % i) for i in range(count)]
    directory = b"".join(names)
    end = struct.pack("<4sHHHHIIH", b"PK\x05\x06", 0, 0, count, count, len(directory), start, 0)
    return made[:start] + directory + end


def locked(rng: random.Random) -> Zip:
    """Encrypted, or packed by a method that nobody has."""
    made = bytearray(mixed(rng))
    local, central = made.find(b"PK\x03\x04"), made.find(b"PK\x01\x02")
    if rng.random() < 0.5:
        made[local + 6] |= 1
        made[central + 8] |= 1
        return Zip("encrypted", bytes(made), True)
    method = struct.pack("<H", rng.choice([1, 6, 9, 93, 97, 99, 65_535]))
    made[local + 8 : local + 10] = made[central + 10 : central + 12] = method
    return Zip("of an unknown method", bytes(made), True)


def cut(rng: random.Random) -> Zip:
    made = mixed(rng)
    return Zip("cut", made[: rng.randrange(1, len(made))], True)


def flipped(rng: random.Random) -> Zip:
    made = bytearray(mixed(rng))
    for _ in range(rng.choice([1, 1, 2, 10])):
        made[rng.randrange(len(made))] ^= 1 << rng.randrange(8)
    return Zip("with flipped bits", bytes(made))


def lying(rng: random.Random) -> Zip:
    """Sizes, offsets and counts of the directory that are not so."""
    made = bytearray(mixed(rng))
    central, end = made.find(b"PK\x01\x02"), made.rfind(b"PK\x05\x06")
    fields = [(central + place, size) for place, size in ((20, 4), (24, 4), (28, 2), (30, 2), (42, 4))]
    fields += [(end + place, size) for place, size in ((10, 2), (12, 4), (16, 4), (20, 2))]
    place, size = rng.choice(fields)
    made[place : place + size] = rng.choice([rng.randbytes(size), b"\xff" * size, bytes(size)])
    return Zip("with a directory that lies", bytes(made))


def foreign(rng: random.Random) -> Zip:
    kind = rng.choice([b"7z\xbc\xaf\x27\x1c", b"Rar!\x1a\x07", b"\x1f\x8b\x08", b"BZh9", b"", b"PK", b"PK\x05\x06"])
    return Zip(f"{kind!r} and noise", kind + rng.randbytes(rng.randint(0, 500)), True)


def wrapped(rng: random.Random) -> Zip:
    """With bytes before it, as an executable that unpacks itself, or behind it."""
    made, noise = mixed(rng), rng.randbytes(rng.randint(1, 900))
    return Zip("behind other bytes", noise + made) if rng.random() < 0.5 else Zip("before other bytes", made + noise)


MADE: tuple[tuple[int, Callable[[random.Random], Zip]], ...] = (
    (6, whole),
    (16, slip),
    (16, odd),
    (8, special),
    (6, double),
    (8, bomb),
    (8, locked),
    (10, cut),
    (16, flipped),
    (16, lying),
    (5, foreign),
    (5, wrapped),
)


def listing(root: Path) -> dict[bytes, bytes | None]:
    """All that lies below a folder, links not followed; None for what is no plain file."""
    found: dict[bytes, bytes | None] = {}
    for place, folders, names in os.walk(os.fsencode(root)):
        for name in [*names, *(one for one in folders if os.path.islink(os.path.join(place, one)))]:
            path = os.path.join(place, name)
            plain = stat.S_ISREG(os.lstat(path).st_mode)
            with open(path, "rb") if plain else io.BytesIO() as stream:
                found[os.path.relpath(path, os.fsencode(root))] = stream.read() if plain else None
    return found


def judge(made: Zip, unpacked: dict[bytes, bytes | None], file: Path) -> Outcome:
    """Of an archive that was taken: its entries, all of them and nothing else."""
    if made.must_fail:
        return Outcome(made.case, "silent", "taken")
    with zipfile.ZipFile(file) as source:
        expected = {
            os.path.normpath(os.fsencode(one.filename)): source.read(one)
            for one in source.infolist()
            if not one.is_dir()
        }
    if unpacked != expected:
        return Outcome(made.case, "silent", f"{len(unpacked)} files of {len(expected)} entries, or other bytes")
    return Outcome(made.case, "fine")


def attack(made: Zip, folder: Path) -> Outcome:
    file, scratch = folder / "in/a.zip", folder / "scratch"
    file.parent.mkdir(exist_ok=True)
    scratch.mkdir(exist_ok=True)
    file.write_bytes(made.content)
    before, start = listing(folder), time.monotonic()
    tempfile.tempdir = str(scratch)
    try:
        with archive.opened(file) as root:
            unpacked = listing(root)
            elsewhere = {
                name
                for name in listing(folder)
                if not name.startswith(os.path.relpath(os.fsencode(root), os.fsencode(folder)))
            }
        outcome = judge(made, unpacked, file)
        if elsewhere != set(before) or None in unpacked.values():
            outcome = Outcome(made.case, "escape", "something lies outside, or is no plain file")
    except ValueError as error:
        said = str(error)
        outcome = Outcome(made.case, "clear" if str(file) in said and "\n" not in said else "raw", said)
    except Exception as error:
        outcome = Outcome(made.case, "raw", repr(error))
    finally:
        tempfile.tempdir = None
    if listing(folder) != before:
        return Outcome(made.case, "escape", "something was left")
    return Outcome(made.case, "hang") if time.monotonic() - start > SECONDS else outcome


def run(count: int, seed: int, folder: Path) -> Iterator[Outcome]:
    rng = random.Random(seed)
    weights, makers = zip(*MADE, strict=True)
    for _ in range(count):
        (make,) = rng.choices(makers, weights)
        yield attack(make(rng), folder)
