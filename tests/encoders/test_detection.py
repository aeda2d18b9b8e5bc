import json

import numpy as np
import pytest
import torch
from PIL import Image

from encoders import detection
from stages.core.encoder.model import save
from tests.helpers.pretraining_world import RESNET, network
from tests.helpers.small import CONFIG

SMALL = ["--steps", "4", "--batch", "2", "--short", "64", "--long", "96", "--rate", "0.01"]


def write_coco(root, images=4, side=64):
    """Squares of two kinds on noise, in COCO's layout, category numbers with gaps as in the original."""
    rng = np.random.default_rng(0)
    (root / "annotations").mkdir(parents=True)
    for part in ("train", "val"):
        (root / f"{part}2017").mkdir()
        content = {"images": [], "annotations": [], "categories": [{"id": 3, "name": "a"}, {"id": 7, "name": "b"}]}
        for number in range(images):
            pixels = rng.integers(0, 60, (side, side, 3), dtype=np.uint8)
            x, y, size, kind = *rng.integers(4, 30, 2).tolist(), 24, number % 2
            pixels[y : y + size, x : x + size, kind] = 240
            Image.fromarray(pixels).save(root / f"{part}2017" / f"{number}.png")
            content["images"].append({"id": number + 1, "file_name": f"{number}.png", "width": side, "height": side})
            corners = [x, y, x + size, y, x + size, y + size, x, y + size]
            item = {"id": number + 1, "image_id": number + 1, "category_id": 3 + 4 * kind, "iscrowd": 0}
            item |= {"bbox": [x, y, size, size], "area": size**2, "segmentation": [corners]}
            content["annotations"].append(item)
        (root / "annotations" / f"instances_{part}2017.json").write_text(json.dumps(content))
    return root


def write_encoder(folder, config):
    folder.mkdir()
    save(network(config), folder)
    return folder


@pytest.fixture
def coco(tmp_path):
    return write_coco(tmp_path / "coco")


def test_split__boxes_labels_and_masks_agree(coco):
    pixels, target = detection.Split(coco, "train").read(2)
    assert pixels.shape == (3, 64, 64) and target["labels"].tolist() == [2]
    left, top, right, bottom = target["boxes"][0].int().tolist()
    assert target["masks"][0, top:bottom, left:right].all() and target["masks"].sum() == (right - left) * (bottom - top)
    assert (pixels[1, top:bottom, left:right] > 0.9).all()


def test_flip__moves_boxes_and_masks_with_the_image(coco):
    pixels, target = detection.Split(coco, "train").read(1)
    mirrored, moved = detection.flip(pixels, target)
    left, top, right, bottom = moved["boxes"][0].int().tolist()
    assert moved["masks"][0, top:bottom, left:right].all() and (mirrored[0, top:bottom, left:right] > 0.9).all()
    again = detection.flip(mirrored, moved)
    assert torch.equal(again[0], pixels) and torch.equal(again[1]["boxes"], target["boxes"])


def test_split__a_file_outside_the_folder_is_refused(coco):
    file = coco / "annotations" / "instances_train2017.json"
    file.write_text(file.read_text().replace('"0.png"', '"../val2017/0.png"'))
    with pytest.raises(ValueError, match="not a file in"):
        detection.Split(coco, "train").read(1)


def test_split__missing_or_broken_annotations_are_refused(coco, tmp_path):
    with pytest.raises(ValueError, match="holds 0 files"):
        detection.Split(tmp_path, "train")
    (coco / "annotations" / "instances_train2017.json").write_text("[]")
    with pytest.raises(ValueError, match="not a COCO annotation file"):
        detection.Split(coco, "train")


def test_evaluate__perfect_answers_score_100_percent(coco):
    split = detection.Split(coco, "val")

    class Oracle(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))
            self.numbers = iter(split.images)

        def forward(self, images):
            _, target = split.read(next(self.numbers))
            scores = torch.ones(len(target["labels"]))
            return [target | {"scores": scores, "masks": target["masks"][:, None].float()}]

    assert detection.evaluate(Oracle(), split) == pytest.approx(
        {f"{kind} {name}": 100.0 for kind in ("bbox", "segm") for name in detection.NAMES}
    )


@pytest.mark.slow
@pytest.mark.parametrize("config", [CONFIG, RESNET])
def test_main__trains_and_evaluates_either_kind_of_encoder(coco, tmp_path, config):
    encoder = write_encoder(tmp_path / "encoder", config)
    arguments = detection.parse([str(encoder), str(coco), str(tmp_path / "out"), *SMALL])
    metrics = detection.main(arguments)
    assert set(metrics) == {f"{kind} {name}" for kind in ("bbox", "segm") for name in detection.NAMES}
    assert json.loads((tmp_path / "out" / "metrics.json").read_text()) == metrics
    assert (tmp_path / "out" / "weights.safetensors").exists() and not (tmp_path / "out" / "checkpoint").exists()


@pytest.mark.slow
def test_train__a_killed_run_continues_to_the_same_weights(coco, tmp_path, monkeypatch):
    encoder = write_encoder(tmp_path / "encoder", CONFIG)
    monkeypatch.setattr(detection, "STEPS_BETWEEN_CHECKPOINTS", 1)
    split = detection.Split(coco, "train")
    weights = []
    for name, stop in (("whole", None), ("killed", 2)):
        reads = []
        original = detection.Split.read

        def read(self, number, reads=reads, stop=stop, original=original):
            reads.append(number)
            if stop is not None and len(reads) > 2 * stop:
                raise KeyboardInterrupt
            return original(self, number)

        monkeypatch.setattr(detection.Split, "read", read)
        arguments = detection.parse([str(encoder), str(coco), str(tmp_path), *SMALL])
        for _ in range(2):
            torch.manual_seed(0)
            model = detection.build(encoder, 3, (64,), 96)
            try:
                detection.train(model, split, arguments, tmp_path / name)
                break
            except KeyboardInterrupt:
                monkeypatch.setattr(detection.Split, "read", original)
        monkeypatch.setattr(detection.Split, "read", original)
        weights.append(model.state_dict())
    assert all(torch.equal(weights[0][name], tensor) for name, tensor in weights[1].items())


def test_build__another_network_is_refused(tmp_path):
    config = RESNET.model_copy(update={"architecture": "mobilenetv2_050"})
    with pytest.raises(ValueError, match="neither a ResNet nor a ViT"):
        detection.build(write_encoder(tmp_path / "encoder", config), 3, (64,), 96)
