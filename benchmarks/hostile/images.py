"""Image files that are damaged, lie about themselves or have odd names, met by what the stage `images` reads with.

A cut file, or a PNG with flipped bits (it carries checksums), must be refused or give the pixels it had; other formats
cannot tell a flipped bit from a picture. What is decoded must have the size that the file was made with.
"""

import hashlib
import io
import multiprocessing
import os
import random
import re
import resource
import struct
import zlib
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from benchmarks.hostile.outcome import Outcome
from stages.core.report.visible import visible
from stages.core.sources import folder as folders
from stages.core.sources.decode import FORMATS, Picture, decode
from stages.core.store.square import Unreadable
from stages.core.store.tables import read_csv, write_csv

COUNT = 3200
SECONDS = 10.0
SIDE = 32
LIMIT = 10**6  # pixels
MEMORY = 2**30  # bytes that decoding one file may take
MODES = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr", "LAB", "HSV", "I", "I;16", "F")
OTHERS = ("PPM", "TGA", "ICO", "PCX", "SGI", "IM", "DDS", "PDF", "EPS", "MPO", "JPEG2000", "XBM", "MSP", "SPIDER")
UNSEEN = [*map(chr, range(1, 32)), "\x7f", "\x85", *"\u2028\u2029\u202e\u200f\u2066\ufeff"]
# Quotes, mark-up, formulas, options and templates; then white space and dots, other scripts, and what is no UTF-8.
ODD = [*UNSEEN, *"\"'`;|&~*?#,:\\", "$(x)", "<script>alert(1)</script>", "</td>", "{{x}}", "%s", "%00", "\\n", "[a]"]
ODD += ["=1+1", "@x", "-rf", "--help", " ", "  ", "\xa0", ".", "..", "..."]
ODD += ["\U0001f469\u200d\U0001f469\u200d\U0001f467", "\U0001f600", "\u05d0\u05d1", "\u4e2d", "\u0301"]
ODD += [os.fsdecode(raw) for raw in (b"\x80", b"\xc0", b"\xe9", b"\xff", b"\xed\xa0\x80")]


class File(NamedTuple):
    """What lies on the disk, and what may be made of it: pixels of this digest and size, or an error; None: any."""

    case: str
    content: bytes
    size: tuple[int, int] | None = None
    pixels: str | None = None
    must_fail: bool = False


def drawing(rng: random.Random, mode: str) -> Image.Image:
    """A picture that has no two rows alike, in any mode that Pillow knows."""
    width, height = rng.randint(1, 90), rng.randint(1, 90)
    noise = np.random.default_rng(rng.randrange(2**32))
    if mode in ("I", "I;16", "F"):
        kind = {"I": np.int32, "I;16": np.uint16, "F": np.float32}[mode]
        return Image.fromarray(noise.integers(1, 60000, (height, width)).astype(kind))
    base = Image.fromarray(noise.integers(1, 256, (height, width, 3), dtype=np.uint8))
    return (
        base.convert("P").convert("PA")
        if mode == "PA"
        else (Image.frombytes("LAB", base.size, base.tobytes()) if mode == "LAB" else base.convert(mode))
    )


def saved(rng: random.Random, kind: str, modes: tuple[str, ...] = MODES) -> tuple[bytes, Image.Image]:
    """A whole file of the format, in a mode that it can hold."""
    while True:
        image, stream = drawing(rng, rng.choice(modes)), io.BytesIO()
        options: dict = {}
        if kind == "TIFF":
            options["compression"] = rng.choice([None, "tiff_lzw", "tiff_adobe_deflate", "packbits", "jpeg"])
        if kind == "JPEG":
            options |= {"progressive": rng.random() < 0.5, "quality": rng.randint(5, 95)}
        if kind == "WEBP":
            options["lossless"] = rng.random() < 0.5
        if rng.random() < 0.3 and kind in ("TIFF", "JPEG", "PNG", "WEBP"):
            options["exif"] = Image.Exif()
            options["exif"][0x0112] = rng.randint(0, 9)
        try:
            image.save(stream, kind, **options)
        except (OSError, ValueError, KeyError, RuntimeError):
            continue
        turned = options.get("exif", {}).get(0x0112, 1) in (5, 6, 7, 8)
        image.info["upright"] = image.size[::-1] if turned else image.size
        return stream.getvalue(), image


def digest(pixels: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(pixels).data).hexdigest()


def pixels_of(content: bytes, folder: Path) -> str | None:
    """The digest of what the reader makes of a whole file; None where it does not take it."""
    file = folder / "whole"
    file.write_bytes(content)
    try:
        return digest(decode(file, SIDE, LIMIT).pixels)
    except Unreadable:
        return None


def whole(rng: random.Random, _: Path) -> File:
    kind = rng.choice(FORMATS)
    content, image = saved(rng, kind)
    return File(f"whole {kind} {image.mode} {image.size}", content, image.info["upright"])


def cut(rng: random.Random, folder: Path) -> File:
    kind = rng.choice(FORMATS)
    content, image = saved(rng, kind)
    kept = rng.randrange(len(content))
    return File(
        f"{kind} {image.mode} cut to {kept} of {len(content)}", content[:kept], None, pixels_of(content, folder)
    )


def flipped(rng: random.Random, folder: Path) -> File:
    kind = rng.choice(FORMATS)
    content, image = saved(rng, kind)
    changed = bytearray(content)
    for _ in range(rng.choice([1, 1, 1, 3, 30])):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    pixels = pixels_of(content, folder) if kind == "PNG" else None
    return File(f"{kind} {image.mode} with flipped bits", bytes(changed), None, pixels)


def scrambled(rng: random.Random, _: Path) -> File:
    """A header that leads to the middle of other bytes: pieces moved, doubled, zeroed, or of another format."""
    kind, other = rng.choice(FORMATS), rng.choice(FORMATS)
    (content, _), (foreign, _) = saved(rng, kind), saved(rng, other)
    start, stop = sorted((rng.randrange(len(content)), rng.randrange(len(content))))
    how = rng.choice(["doubled", "left out", "zeroed", "random", "foreign"])
    middle = {
        "doubled": content[start:stop] * 2,
        "left out": b"",
        "zeroed": bytes(stop - start),
        "random": rng.randbytes(stop - start),
        "foreign": foreign[start:stop],
    }[how]
    return File(f"{kind} with bytes {start} to {stop} {how}", content[:start] + middle + content[stop:])


def foreign(rng: random.Random, _: Path) -> File:
    """What is no image of the formats that are read."""
    how = rng.choice(["format", "format", "random", "empty", "text", "zip", "script", "header"])
    if how == "format":
        kind = rng.choice(OTHERS)
        stream = io.BytesIO()
        mode = "1" if kind in ("XBM", "MSP") else "F" if kind == "SPIDER" else "RGB"
        try:
            drawing(rng, mode).save(stream, kind)
        except (OSError, ValueError, KeyError):
            stream = io.BytesIO(kind.encode())
        # An MPO is a JPEG, with others behind it that are not read.
        return File(f"a {kind}", stream.getvalue(), must_fail=kind != "MPO")
    content, _ = saved(rng, rng.choice(FORMATS))
    made = {
        "random": rng.randbytes(rng.randint(1, 4000)),
        "empty": b"",
        "text": b"not an image\n" * rng.randint(1, 100),
        "zip": b"PK\x03\x04" + content,
        "script": b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>",
        "header": content[: rng.randint(1, 12)],
    }[how]
    return File(f"foreign: {how}", made, must_fail=True)


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(width: int, height: int, depth: int, colour: int, rows: bytes, *extra: bytes, interlaced: int = 0) -> bytes:
    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlaced)
    body = chunk(b"IDAT", zlib.compress(rows, 9))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + b"".join(extra) + body + chunk(b"IEND", b"")


def bomb(rng: random.Random, _: Path) -> File:
    """A few bytes that claim to be, or unpack to, more than may be decoded."""
    how = rng.choice(["png", "png long", "png text", "png profile", "gif", "bmp", "tiff", "webp", "jpeg"])
    wide, high = rng.choice([1, 40_000, 65_535]), rng.choice([65_535, 60_000, 50_000])
    if how == "png":
        return File(how, png(wide * 1000, high, 8, 2, bytes(10**6)), must_fail=True)
    if how == "png long":  # far more rows than the header says
        return File(how, png(4, 4, 8, 0, b"\0\1\2\3\4" * 4 + bytes(5 * 10**7)), (4, 4))
    if how == "png text":
        text = chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(2 * 10**8), 9))
        return File(how, png(4, 4, 8, 0, b"\0\1\2\3\4" * 4, text))
    if how == "png profile":
        profile = chunk(b"iCCP", b"a\0\0" + zlib.compress(bytes(2 * 10**8), 9))
        return File(how, png(4, 4, 8, 0, b"\0\1\2\3\4" * 4, profile))
    kind = how.upper()
    content, _ = saved(rng, kind, ("RGB",))
    places = {
        "GIF": [(6, struct.pack("<HH", 65_535, high))],
        "BMP": [(18, struct.pack("<ii", wide * 30_000, high))],
        "WEBP": [(12, b"VP8X"), (24, b"\xff\xff\xff\xff\xff\xff")],
    }
    changed = bytearray(content)
    if kind in places:
        for place, value in places[kind]:
            changed[place : place + len(value)] = value
    elif kind == "JPEG":
        for marker in (b"\xff\xc0", b"\xff\xc2"):
            place = content.find(marker)
            if place >= 0:
                changed[place + 5 : place + 9] = struct.pack(">HH", 65_500, 65_500)
    else:  # the first entries of a TIFF's directory are its width and height
        order = "<" if content[:2] == b"II" else ">"
        (start,) = struct.unpack(f"{order}I", content[4:8])
        for entry in range(struct.unpack(f"{order}H", content[start : start + 2])[0]):
            at = start + 2 + 12 * entry
            if struct.unpack(f"{order}H", content[at : at + 2])[0] in (256, 257):
                changed[at + 2 : at + 12] = struct.pack(f"{order}HII", 4, 1, rng.choice([10**5, 10**9, 2**32 - 1]))
    return File(f"{kind} of claimed size", bytes(changed), must_fail=kind not in ("GIF", "WEBP"))


def early(rng: random.Random, _: Path) -> File:
    """A PNG in good order whose rows are fewer than it says, or that has a transparent colour."""
    depth, colour = rng.choice([(1, 0), (2, 0), (4, 0), (8, 0), (16, 0), (8, 2), (16, 2), (8, 4), (16, 4), (8, 6)])
    wide, high = rng.randint(1, 40), rng.randint(2, 40)
    row = b"\0" + (b"\xff" if depth == 1 else b"\x55") * -(-wide * depth * {0: 1, 2: 3, 4: 2, 6: 4}[colour] // 8)
    if rng.random() < 0.3 and colour in (0, 2):
        key = chunk(b"tRNS", struct.pack(">H", 0x5555 & ((1 << depth) - 1)) * (1 if colour == 0 else 3))
        white = digest(np.full((SIDE, SIDE, 3), 255, np.uint8))
        whole = png(wide, high, depth, colour, row * high, key)
        return File(f"PNG of {depth} bits, colour {colour}, all transparent", whole, (wide, high), white)
    kept = rng.randrange(len(row) * high)
    made = png(wide, high, depth, colour, (row * high)[:kept])
    return File(f"PNG of {depth} bits with {kept} of {len(row) * high} bytes", made, must_fail=True)


MADE: tuple[tuple[int, Callable[[random.Random, Path], File]], ...] = (
    (10, whole),
    (25, cut),
    (25, flipped),
    (12, scrambled),
    (8, foreign),
    (4, bomb),
    (6, early),
)


def serve(pipe: Connection) -> None:
    """Decodes what it is told to, in a process that may be killed."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    while True:
        file = pipe.recv()
        try:
            pipe.send(decode(Path(file), SIDE, LIMIT))
        except Unreadable as error:
            pipe.send(str(error))
        except BaseException as error:
            pipe.send(error if isinstance(error, MemoryError) else RuntimeError(repr(error)))


class Decoder:
    """The project's reader behind a time limit and a limit on memory."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        context = multiprocessing.get_context("fork")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=serve, args=(other,), daemon=True)
        self.process.start()
        other.close()

    def decode(self, file: Path) -> Picture | str | Exception | None:
        """A picture, a reason, an error that nobody foresaw; None where no answer came in time."""
        try:
            self.pipe.send(str(file))
            if self.pipe.poll(SECONDS):
                return self.pipe.recv()
            answer = None
        except (EOFError, OSError):
            answer = RuntimeError(f"the process ended ({self.process.exitcode})")
        self.stop()
        self.start()
        return answer

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def judge(file: File, answer: Picture | str | Exception | None) -> Outcome:
    if answer is None:
        return Outcome(file.case, "hang")
    if isinstance(answer, Exception):
        return Outcome(file.case, "raw", repr(answer))
    if isinstance(answer, str):
        if not answer or "\n" in answer or re.search("0x[0-9a-f]{6}|Traceback", answer):
            return Outcome(file.case, "raw", answer)
        return Outcome(file.case, "clear", answer)
    if file.must_fail:
        return Outcome(file.case, "silent", "taken")
    if file.size is not None and (answer.width, answer.height) != file.size:
        return Outcome(file.case, "silent", f"{answer.width} x {answer.height}, made as {file.size}")
    if file.pixels is not None and digest(answer.pixels) != file.pixels:
        return Outcome(file.case, "silent", "other pixels")
    return Outcome(file.case, "fine")


def odd_name(rng: random.Random) -> bytes:
    """A name of up to 255 bytes, as the file system takes it."""
    parts = [*rng.choices(ODD, k=rng.randint(1, 4)), "a"]
    rng.shuffle(parts)
    name = os.fsencode("".join(parts)).replace(b"/", b"_").replace(b"\0", b"_")
    name += b"x" * rng.choice([0, 0, 300])
    return name[:251] + rng.choice([b".png", b".PNG", b".jpg", b".txt", b""])


def named(rng: random.Random, folder: Path) -> Outcome:
    """Two odd names, one of a class folder: each must be an image or be left out with a reason, also in the table."""
    root = folder / "names"
    picture, _ = saved(rng, "PNG", ("RGB",))
    (root / "class").mkdir(parents=True)
    (root / "class/plain.png").write_bytes(picture)
    (root / "other").mkdir()
    (root / "other/plain.png").write_bytes(picture)
    outside = folder / "outside.png"
    outside.write_bytes(picture)
    what, name = rng.choice(["file", "file", "file", "class", "link", "loop", "pipe", "folder"]), odd_name(rng)
    place = os.fsencode(root / "class") + b"/" + name
    case = f"{what} named {name!r}"
    if what == "file":
        Path(os.fsdecode(place)).write_bytes(picture)
    elif what == "class":
        place = os.fsencode(root) + b"/" + name
        os.mkdir(place)
        Path(os.fsdecode(place + b"/in.png")).write_bytes(picture)
    elif what == "link":
        os.symlink(os.fsencode(outside), place)
    elif what == "loop":
        os.symlink(name, place)
    elif what == "pipe":
        os.mkfifo(place)
    else:
        os.mkdir(place)
    table = folder / "rejected.csv"
    try:
        found = folders.find(root)
        read = {path: decode(root / path, SIDE, LIMIT) for path in found.images if what != "pipe"}
        write_csv(table, [("path", "reason"), *found.rejected.items()])
        again = {row["path"]: row["reason"] for row in read_csv(table)}
    except Unreadable as error:
        return Outcome(case, "clear", str(error))
    except Exception as error:
        return Outcome(case, "raw", repr(error))
    finally:
        table.unlink(missing_ok=True)
        remove(root)
    if again != found.rejected:
        return Outcome(case, "silent", "the table of what was left out reads otherwise")
    shown = [visible(text) for text in (*found.images, *found.images.values(), *found.rejected)]
    if any(letter in text for text in shown for letter in UNSEEN):
        return Outcome(case, "raw", f"shown as {shown}")
    if what == "link" and len(read) > 2:
        return Outcome(case, "escape", "a link out of the folder was read")
    if name.startswith(b"."):
        return Outcome(case, "fine", "hidden, as documented")
    known = len(found.images) + len(found.rejected)
    return Outcome(case, "fine" if known == 3 else "silent", f"{known} of 3 known")


def remove(root: Path) -> None:
    """Of a folder all, by bytes: its names are no text."""
    for place, folder_names, names in os.walk(os.fsencode(root), topdown=False):
        for name in names:
            os.unlink(os.path.join(place, name))
        for name in folder_names:
            path = os.path.join(place, name)
            os.unlink(path) if os.path.islink(path) else os.rmdir(path)
    os.rmdir(root)


def run(count: int, seed: int, folder: Path) -> Iterator[Outcome]:
    rng, decoder = random.Random(seed), Decoder()
    weights, makers = zip(*MADE, strict=True)
    try:
        for i in range(count):
            if i % 10 == 9:
                yield named(rng, folder)
                continue
            (make,) = rng.choices(makers, weights)
            made = make(rng, folder)
            file = folder / "file"
            file.write_bytes(made.content)
            yield judge(made, decoder.decode(file))
    finally:
        decoder.stop()
