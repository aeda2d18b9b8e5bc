"""Trains the encoder that ships: a small ViT learns the feature space of a pretrained CNN, without labels.

    PYTHONPATH=. python encoders/distil.py IMAGES.zip TEACHER.safetensors FOLDER [--epochs 20] [--start encoders/vit48]

Every image is seen by the teacher in a few fixed views (whole or cropped, mirrored or not); its pooled features of them
are computed once. The student then learns from the same views, slightly jittered in colour:
    L = 1 - cos(W z, t) + KL(softmax(t t'/tau) || softmax(z z'/tau))
where z is the class token that retrieval will compare by cosine, W a throw-away matrix and t the teacher's features,
centred and whitened in part, by which they retrieve better. The second term (relational distillation) makes the cosine
of z itself, not only of W z, follow the teacher.

Beside them, each step sees a few drawn characters and digits of the training classes of the embedded tasks (never of
their test classes), which the teacher knows little about. There the target similarities are the cosines of the images
themselves, as 12 x 12 grey values, and the student sees two strongly distorted views of each: it learns the shape that
such a thumbnail shows, whatever the ink, paper, place and angle.

The blocks' matrices are trained by Muon, all else by AdamW.

Run by hand, not by DVC: the images and the teacher are not part of the project. What it needs to resume from its last
epoch, and the teacher's features, lie in `.work/distil`.
"""

import argparse
import hashlib
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

from polygrain.compute import device
from polygrain.compute.principal import largest, principal_components
from polygrain.encoder.config import Config
from polygrain.encoder.model import save as save_network
from polygrain.mpcl.trainable import TrainableEncoder, load
from polygrain.sources import installed
from polygrain.store import work

SIDE = 48
CONFIG = Config(
    architecture="vit_tiny_patch16_224",
    kwargs={"img_size": SIDE, "patch_size": 8, "depth": 6},
    size=SIDE,
    resize=SIDE,
    mean=(0.5, 0.5, 0.5),
    std=(0.5, 0.5, 0.5),
)
BATCH, DRAWN = 256, [14, 10]  # images of the archive in a step; characters and digits, each in two views
DIMENSIONS, POWER = 512, 0.35  # of the whitening: principal components kept, and divided by variance ** POWER
TEMPERATURE, SHAPE_TEMPERATURE = 0.037, 0.05  # cosines of whitened features lie close together


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


def teach(images: np.ndarray, boxes: np.ndarray, weights: Path, where: torch.device) -> torch.Tensor:
    """The teacher's pooled features, float16 `view image dim`, on the CPU."""
    teacher = timm.create_model("mobilenetv2_100", num_classes=1001, pad_type="same")
    teacher.load_state_dict(load_file(weights))
    teacher.reset_classifier(0)
    teacher.eval().to(where, memory_format=torch.channels_last)
    out = torch.empty(*boxes.shape[:2], 1280, dtype=torch.float16)
    with torch.inference_mode(), device.autocast(where, "auto"):
        for v in range(len(boxes)):
            for s in tqdm(range(0, len(images), 250), desc=f"teacher, view {v + 1}/{len(boxes)}"):
                x = cut(images[s : s + 250], boxes[v, s : s + 250], 96) * 2 - 1
                out[v, s : s + 250] = teacher(x.to(where, memory_format=torch.channels_last)).half()
    return out


def jitter(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Random brightness and contrast per image, up to 30 %."""
    gain, shift = (torch.rand(2, len(x), 1, 1, 1, generator=generator) - 0.5) * 0.6
    mean = x.mean((1, 2, 3), keepdim=True)
    return ((x - mean) * (1 + gain) + mean * (1 + shift)).clamp(0, 1)


def read_embedded(size: int) -> list[np.ndarray]:
    """Images of the training classes (first half by name) of the embedded characters and digits."""
    tasks = [installed.glyphs(size, 150), installed.digits(size, 200)]
    images = []
    for pictures in tasks:
        classes = sorted({class_name for class_name, _ in pictures})
        known = set(classes[: (len(classes) + 1) // 2])
        images.append(np.stack([picture.pixels for (name, _), picture in pictures.items() if name in known]))
    return images


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


def whitening(features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The mean, projected, and the projection `dim component` onto principal components, evened out in part.

    Every fifth image is enough for the components.
    """
    some = features[::5].float().numpy()
    components = principal_components(some, min(DIMENSIONS, largest(some)))
    variances = components.energies / len(some)
    projection = torch.from_numpy(components.axes / (variances + 1e-3 * variances[0]) ** POWER).float()
    return features.float().mean(0) @ projection, projection


def relate(z: torch.Tensor, t: torch.Tensor, tau: float) -> torch.Tensor:
    """KL(softmax(t t'/tau) || softmax(z z'/tau)), each row without itself; rows of both have unit length."""
    itself = torch.eye(len(z), dtype=torch.bool, device=z.device)
    student = (z @ z.T / tau).masked_fill(itself, -1e4).log_softmax(1)
    return F.kl_div(student, (t @ t.T / tau).masked_fill(itself, -1e4).softmax(1), reduction="batchmean")


def build_optimizers(student: TrainableEncoder, head: torch.nn.Module) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the blocks, AdamW for all else."""
    blocks = [p for name, p in student.named_parameters() if ".blocks." in name and p.ndim == 2]
    known = {id(p) for p in blocks}
    others = [p for p in [*student.parameters(), *head.parameters()] if id(p) not in known]
    muon = torch.optim.Muon(blocks, lr=2e-3, weight_decay=0.05, adjust_lr_fn="match_rms_adamw")
    return [muon, torch.optim.AdamW(others, lr=1e-3, weight_decay=0.05)]


def key(archive: Path, weights: Path, *others: object) -> str:
    """A name for what depends on these files and values."""
    files = [work.digest(archive), work.digest(weights)]
    return hashlib.sha256(json.dumps([*files, *map(str, others)]).encode()).hexdigest()[:16]


def main(archive: Path, weights: Path, output: Path, epochs: int, views: int, start: Path | None) -> None:
    images = read_images(archive, SIDE)
    if len(images) < BATCH:
        raise ValueError(f"{archive} holds {len(images)} images (.webp); give {BATCH} or more, which is one step")
    boxes = draw_views(len(images), views, seed=0)
    where = device.best()
    cache = work.WORK / "distil" / f"teacher-{key(archive, weights, views)}.safetensors"
    if not cache.exists():
        cache.parent.mkdir(parents=True, exist_ok=True)
        save_file({"features": teach(images, boxes, weights, where)}, cache.with_suffix(".new"))
        cache.with_suffix(".new").replace(cache)
    targets = load_file(cache)["features"]
    mean, projection = whitening(targets[0])

    torch.manual_seed(0)  # after the teacher, whose making draws numbers, too
    student = load(start, "auto") if start else TrainableEncoder(CONFIG, "auto")
    head = torch.nn.Linear(student.dim, projection.shape[1])
    both = torch.nn.ModuleDict({"student": student, "head": head}).to(where)
    optimizers = build_optimizers(student, head)
    sources = read_embedded(SIDE)
    per_epoch = len(images) // BATCH
    steps, first = epochs * per_epoch, 0
    begun = work.digest(start / "weights.safetensors") if start else "random"
    kept = work.WORK / "distil" / f"{key(archive, weights, views, epochs, begun)}.pt"
    if kept.exists():
        state = torch.load(kept, weights_only=True, map_location=where)
        both.load_state_dict(state["model"])
        for optimizer, saved in zip(optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        first = state["step"]
    losses = []
    for step in tqdm(range(first, steps), desc="distil", initial=first, total=steps, mininterval=10):
        epoch, place = divmod(step, per_epoch)
        factor = min(1, (step + 1) / 100) * 0.5 * (1 + math.cos(math.pi * step / steps))
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = optimizer.defaults["lr"] * factor
        generator = torch.Generator().manual_seed(1000 + step)
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(epoch)).numpy()
        rows = np.sort(order[place * BATCH : (place + 1) * BATCH])
        view = torch.randint(views, (BATCH,), generator=generator).numpy()
        x = jitter(cut(images[rows], boxes[view, rows], SIDE), generator)
        taught = targets[torch.from_numpy(view), torch.from_numpy(rows)].float()
        t = F.normalize(taught @ projection - mean, dim=1).to(where)
        drawn = draw_embedded(sources, DRAWN, generator)
        z = student(torch.cat([x, distort(drawn, generator), distort(drawn, generator)]).to(where))
        regression = 1 - F.cosine_similarity(head(z[:BATCH]), t).mean()
        z = F.normalize(z, dim=1)
        relation = relate(z[:BATCH], t, TEMPERATURE)
        shape = relate(z[BATCH:], thumbnails(drawn).repeat(2, 1).to(where), SHAPE_TEMPERATURE)
        both.zero_grad()
        (regression + relation + shape).backward()
        torch.nn.utils.clip_grad_norm_(both.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
        losses.append([regression.item(), relation.item(), shape.item()])
        if place == per_epoch - 1:
            means = np.mean(losses, 0).round(4).tolist()
            print(json.dumps({"epoch": epoch + 1, "regression, relation, shape": means}), flush=True)
            losses.clear()
            states = [optimizer.state_dict() for optimizer in optimizers]
            torch.save({"model": both.state_dict(), "optimizers": states, "step": step + 1}, kept.with_suffix(".new"))
            kept.with_suffix(".new").replace(kept)
    output.mkdir(parents=True, exist_ok=True)
    save_network(student.half(), output)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", type=Path)
    parser.add_argument("weights", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--views", type=int, default=3)
    parser.add_argument("--start", type=Path, help="the folder of an encoder to go on from; without it, a random start")
    given = parser.parse_args()
    main(given.archive, given.weights, given.output, given.epochs, given.views, given.start)
