"""Small ICC profiles of version 2, and what their numbers are of colours in sRGB."""

import struct
from collections.abc import Sequence

import numpy as np

WHITE = np.array([0.9642, 1, 0.8249])  # of profiles
BRADFORD = np.array([[0.8951, 0.2664, -0.1614], [-0.7502, 1.7135, 0.0367], [0.0389, -0.0685, 1.0296]])
SRGB = ((0.64, 0.33), (0.3, 0.6), (0.15, 0.06))
DISPLAY_P3 = ((0.68, 0.32), (0.265, 0.69), (0.15, 0.06))
ADOBE_RGB = ((0.64, 0.33), (0.21, 0.71), (0.15, 0.06))
GAMMA = 563 / 256  # of Adobe RGB; sRGB and Display P3 have a curve of their own

Primaries = Sequence[tuple[float, float]]


def fixed(values: Sequence[float]) -> bytes:
    return struct.pack(f">{len(values)}i", *(round(value * 65536) for value in values))


def profile(space: bytes, between: bytes, tags: dict[bytes, bytes]) -> bytes:
    tags = {
        b"desc": b"desc" + struct.pack(">4xI", 2) + b"x" + bytes(79),
        b"wtpt": b"XYZ " + bytes(4) + fixed(WHITE),
    } | tags
    table, body = struct.pack(">I", len(tags)), b""
    for name, value in tags.items():
        table += struct.pack(">4sII", name, 132 + 12 * len(tags) + len(body), len(value))
        body += value + bytes(-len(value) % 4)
    head = struct.pack(">I4xI4s4s4s12x4s28x", 128 + len(table + body), 0x02400000, b"mntr", space, between, b"acsp")
    return head + fixed(WHITE) + bytes(48) + table + body


def linear(levels: np.ndarray, gamma: float | None) -> np.ndarray:
    """Light of levels in 0..1; without a gamma as sRGB has it."""
    return levels**gamma if gamma else np.where(levels <= 0.04045, levels / 12.92, ((levels + 0.055) / 1.055) ** 2.4)


def to_xyz(primaries: Primaries) -> np.ndarray:
    """The matrix from linear RGB with the white of day to XYZ with the white of profiles."""
    white, xyz = (
        np.array([x / y, np.ones_like(x), (1 - x - y) / y]) for x, y in ((0.3127, 0.329), np.array(primaries).T)
    )
    cones = np.diag(BRADFORD @ WHITE / (BRADFORD @ white))
    return np.linalg.inv(BRADFORD) @ cones @ BRADFORD @ (xyz * np.linalg.solve(xyz, white))


def rgb(primaries: Primaries, gamma: float | None = None) -> bytes:
    curve = np.rint(linear(np.linspace(0, 1, 1024), gamma) * 65535).astype(">u2")
    tags = {b"%cTRC" % name: b"curv" + struct.pack(">4xI", 1024) + curve.tobytes() for name in b"rgb"}
    colorants = zip(b"rgb", to_xyz(primaries).T, strict=True)
    return profile(
        b"RGB ", b"XYZ ", tags | {b"%cXYZ" % name: b"XYZ " + bytes(4) + fixed(xyz) for name, xyz in colorants}
    )


def encoded(pixels: np.ndarray, primaries: Primaries, gamma: float | None = None) -> np.ndarray:
    """The numbers in a space of the colours that pixels have in sRGB."""
    light = linear(pixels / 255, None) @ (np.linalg.inv(to_xyz(primaries)) @ to_xyz(SRGB)).T
    levels = np.linspace(0, 1, 2**16)
    return np.rint(255 * np.interp(light, linear(levels, gamma), levels)).astype(np.uint8)


def printed(nodes: np.ndarray) -> bytes:
    """Of CMYK: the colours in sRGB of no and full ink of each kind, c m y k 3, between which they are interpolated."""
    f = np.cbrt(linear(nodes / 255, None) @ to_xyz(SRGB).T / WHITE)
    f = np.where(f**3 > 216 / 24389, f, (f**3 * 24389 / 27 + 16) / 116)
    lab = np.stack(
        [(116 * f[..., 1] - 16) * 2.55, *(t * (f[..., a] - f[..., b]) + 128 for t, a, b in ((500, 0, 1), (200, 1, 2)))]
    )
    table = np.rint(np.moveaxis(lab, 0, -1)).clip(0, 255).astype(np.uint8)
    straight = bytes(range(256))
    body = (
        struct.pack(">4s4xBBBx", b"mft1", 4, 3, 2)
        + fixed(np.eye(3).ravel())
        + 4 * straight
        + table.tobytes()
        + 3 * straight
    )
    return profile(b"CMYK", b"Lab ", {b"A2B0": body})
