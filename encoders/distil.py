"""Trains the encoder that ships: a small ViT learns the feature space of a pretrained CNN, without labels.

    PYTHONPATH=. python encoders/distil.py IMAGES.zip TEACHER.safetensors FOLDER [--epochs 14] [--drawn 9]

Every image is seen by the teacher in a few fixed views (whole or cropped, mirrored or not); its pooled features of them
are computed once. The student then learns from the same views, slightly jittered in colour:
    L = 1 - cos(W z, t) + KL(softmax(t t'/tau) || softmax(z z'/tau))
where z is the class token that retrieval will compare by cosine, W a throw-away matrix and t the teacher's centred
features. The second term (relational distillation) makes the cosine of z itself, not only of W z, follow the teacher.

From epoch `drawn` on, a part of each batch are drawn characters and digits of the training classes of the embedded
tasks (never of their test classes), which the teacher knows little about. There the target similarities are the cosines
of the images themselves, as 12 x 12 grey values, and the student sees two strongly distorted views of each: it learns
the shape that such a thumbnail shows, whatever the ink, paper, place and angle.

Run by hand, not by DVC: the images and the teacher are not part of the project. Resumes from its last epoch.
"""

import argparse
import io
import json
import math
import zipfile
from pathlib import Path

import numpy as np
import timm
import torch
import torch.nn.functional as F
from PIL import Image
from safetensors.torch import load_file, save_file
from tqdm import tqdm

from stages.core import embedded

ARCHITECTURE = "vit_tiny_patch16_224"
KWARGS = {"img_size": 48, "patch_size": 8, "depth": 6}
MEAN, STD = (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)


def read_images(archive: Path, size: int) -> np.ndarray:
    """All images of the archive as uint8 `image y x channel`, in the order of their names."""
    with zipfile.ZipFile(archive) as z:
        names = sorted(n for n in z.namelist() if n.endswith(".webp"))
        images = np.empty((len(names), size, size, 3), np.uint8)
        for i, name in enumerate(tqdm(names, desc="decode")):
            images[i] = np.asarray(Image.open(io.BytesIO(z.read(name))).convert("RGB").resize((size, size)))
    return images


def draw_views(count: int, views: int, seed: int) -> np.ndarray:
    """Crop boxes `view image (left, top, side, mirrored)` as fractions of the image; view 0 is the whole image."""
    rng = np.random.default_rng(seed)
    side = np.sqrt(rng.uniform(0.35, 1, (views, count)))
    side[0] = 1
    left, top = rng.uniform(0, 1 - side), rng.uniform(0, 1 - side)
    return np.stack([left, top, side, rng.random((views, count)) < 0.5], -1).astype(np.float32)


def cut(images: np.ndarray, boxes: np.ndarray, size: int) -> torch.Tensor:
    """The views of a batch, resampled to size x size, in 0..1."""
    x = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255
    left, top, side, mirrored = torch.from_numpy(boxes).T
    theta = torch.zeros(len(x), 2, 3)
    theta[:, 0, 0] = side * (1 - 2 * mirrored)
    theta[:, 1, 1] = side
    theta[:, 0, 2] = 2 * left + side - 1
    theta[:, 1, 2] = 2 * top + side - 1
    grid = F.affine_grid(theta, (len(x), 3, size, size), align_corners=False)
    return F.grid_sample(x, grid, mode="bilinear", padding_mode="reflection", align_corners=False)


def teach(images: np.ndarray, boxes: np.ndarray, weights: Path) -> torch.Tensor:
    """The teacher's pooled features, float16 `view image dim`."""
    teacher = timm.create_model("mobilenetv2_100", num_classes=1001, pad_type="same")
    teacher.load_state_dict(load_file(weights))
    teacher.reset_classifier(0)
    teacher.eval().to(memory_format=torch.channels_last)
    out = torch.empty(*boxes.shape[:2], 1280, dtype=torch.float16)
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        for v in range(len(boxes)):
            for s in tqdm(range(0, len(images), 250), desc=f"teacher, view {v + 1}/{len(boxes)}"):
                x = cut(images[s : s + 250], boxes[v, s : s + 250], 96) * 2 - 1
                out[v, s : s + 250] = teacher(x.contiguous(memory_format=torch.channels_last)).half()
    return out


def jitter(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Random brightness and contrast per image, up to 30 %."""
    gain, shift = (torch.rand(2, len(x), 1, 1, 1, generator=generator) - 0.5) * 0.6
    mean = x.mean((1, 2, 3), keepdim=True)
    return ((x - mean) * (1 + gain) + mean * (1 + shift)).clamp(0, 1)


def read_embedded(size: int) -> list[np.ndarray]:
    """Images of the training classes (first half by name) of the embedded characters and digits."""
    tasks = [embedded.glyphs(size, 150), embedded.digits(size, 200)]
    found = []
    for pictures in tasks:
        classes = sorted({class_name for class_name, _ in pictures})
        known = set(classes[: (len(classes) + 1) // 2])
        found.append(np.stack([picture.pixels for (name, _), picture in pictures.items() if name in known]))
    return found


def draw_embedded(sources: list[np.ndarray], counts: list[int], generator: torch.Generator) -> torch.Tensor:
    """A batch of embedded images, float `image 3 y x` in 0..1."""
    rows = [torch.randint(len(s), (c,), generator=generator).numpy() for s, c in zip(sources, counts, strict=True)]
    batch = np.concatenate([source[chosen] for source, chosen in zip(sources, rows, strict=True)])
    return torch.from_numpy(batch).permute(0, 3, 1, 2).float() / 255


def distort(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """A strong view: turned up to 12 degrees, scaled, shifted; negative, grey, other contrast and tint by chance."""
    n = len(x)
    turn, log_scale, dx, dy = (2 * torch.rand(4, n, generator=generator) - 1) * torch.tensor(
        [[0.21], [0.2], [0.2], [0.2]]
    )
    scale = torch.exp(log_scale)
    theta = torch.stack(
        [
            torch.stack([scale * turn.cos(), -scale * turn.sin(), dx], 1),
            torch.stack([scale * turn.sin(), scale * turn.cos(), dy], 1),
        ],
        1,
    )
    grid = F.affine_grid(theta, list(x.shape), align_corners=False)
    x = F.grid_sample(x, grid, mode="bilinear", padding_mode="border", align_corners=False)
    chance = torch.rand(3, n, 1, 1, 1, generator=generator)
    x = torch.where(chance[0] < 0.4, 1 - x, x)
    x = torch.where(chance[1] < 0.3, x.mean(1, keepdim=True).expand_as(x), x)
    low, high = torch.rand(2, n, 3, 1, 1, generator=generator)
    tinted = 0.5 * low + x * (0.4 + 0.6 * high) * (1 - 0.5 * low)
    return torch.where(chance[2] < 0.7, tinted, x)


def thumbnails(x: torch.Tensor) -> torch.Tensor:
    """Centred grey 12 x 12 values of unit length: what retrieval by pixels does best with."""
    grey = F.interpolate(x.mean(1, keepdim=True), (12, 12), mode="area").flatten(1)
    return F.normalize(grey - grey.mean(1, keepdim=True), dim=1)


def relate(z: torch.Tensor, t: torch.Tensor, tau: float) -> torch.Tensor:
    """KL(softmax(t t'/tau) || softmax(z z'/tau)), each row without itself; rows of both have unit length."""
    itself = torch.eye(len(z), dtype=torch.bool)
    student = (z @ z.T / tau).masked_fill(itself, -1e4).log_softmax(1)
    return F.kl_div(student, (t @ t.T / tau).masked_fill(itself, -1e4).softmax(1), reduction="batchmean")


def main(archive: Path, weights: Path, output: Path, epochs: int, views: int, drawn_from: int) -> None:
    torch.manual_seed(0)
    output.mkdir(parents=True, exist_ok=True)
    images = read_images(archive, KWARGS["img_size"])
    boxes = draw_views(len(images), views, seed=0)
    cache = output / "teacher.safetensors"
    if not cache.exists():
        save_file({"features": teach(images, boxes, weights)}, cache)
    targets = load_file(cache)["features"]
    mean = targets[0].float().mean(0)

    student = timm.create_model(ARCHITECTURE, num_classes=0, **KWARGS)
    head = torch.nn.Linear(student.num_features, targets.shape[-1])
    both = torch.nn.ModuleDict({"student": student, "head": head})
    optimizer = torch.optim.AdamW(both.parameters(), lr=1e-3, weight_decay=0.05)
    batch, tau = 256, 0.1
    steps = len(images) // batch
    sources = read_embedded(KWARGS["img_size"])
    start, checkpoint = 0, output / "checkpoint.pt"
    if checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        both.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        start = state["epoch"]
    for epoch in range(start, epochs):
        generator = torch.Generator().manual_seed(epoch)
        order = torch.randperm(len(images), generator=generator).numpy()
        total = 0.0
        mixed = epoch >= drawn_from
        for step in tqdm(range(steps), desc=f"epoch {epoch + 1}/{epochs}", mininterval=10):
            done = (epoch * steps + step) / (epochs * steps)
            for group in optimizer.param_groups:
                group["lr"] = 1e-3 * min(1, done * 20) * 0.5 * (1 + math.cos(math.pi * done))
            rows = np.sort(order[step * batch : (step + 1) * batch][: 96 if mixed else batch])
            view = torch.randint(views, (len(rows),), generator=generator).numpy()
            x = jitter(cut(images[rows], boxes[view, rows], KWARGS["img_size"]), generator)
            t = F.normalize(targets[torch.from_numpy(view), torch.from_numpy(rows)].float() - mean, dim=1)
            if mixed:
                drawn = draw_embedded(sources, [56, 40], generator)
                x = torch.cat([x, distort(drawn, generator), distort(drawn, generator)])
            with torch.autocast("cpu", dtype=torch.bfloat16):
                z = student((x - 0.5) / 0.5)
            z, drawn_z = z.float().split([len(rows), len(x) - len(rows)])
            regression = 1 - F.cosine_similarity(head(z), t).mean()
            z = F.normalize(z, dim=1)
            loss = regression + relate(z, t, tau)
            if mixed:
                loss = loss + 2 * relate(F.normalize(drawn_z, dim=1), thumbnails(drawn).repeat(2, 1), tau / 2)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(both.parameters(), 1.0)
            optimizer.step()
            total += loss.item()
        print(json.dumps({"epoch": epoch + 1, "loss": round(total / steps, 4)}), flush=True)
        state = {"model": both.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch + 1}
        torch.save(state, checkpoint.with_suffix(".tmp"))
        checkpoint.with_suffix(".tmp").replace(checkpoint)
        save_file({k: v.half().contiguous() for k, v in student.state_dict().items()}, output / "weights.safetensors")
    config = {"architecture": ARCHITECTURE, "kwargs": KWARGS, "size": 48, "resize": 48, "mean": MEAN, "std": STD}
    (output / "config.json").write_text(json.dumps(config, indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", type=Path)
    parser.add_argument("weights", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--epochs", type=int, default=14)
    parser.add_argument("--views", type=int, default=3)
    parser.add_argument("--drawn", type=int, default=9, help="first epoch, from 0, with embedded images")
    given = parser.parse_args()
    main(given.archive, given.weights, given.output, given.epochs, given.views, given.drawn)
