import json

import numpy as np
import pytest
import torch
from PIL import Image

from encoders import detection
from polygrain.encoder.model import save
from polygrain.mpcl.whole_norm import WholeBatchNorm2d
from tests.helpers.pretraining_world import RESNET, network
from tests.helpers.small import CONFIG
from tests.helpers.torchrun import torchrun

SMALL = ["--steps", "4", "--batch", "2", "--short", "64", "--long", "96", "--rate", "0.01", "--statistics", "2"]
PROGRAM = """
import sys
from pathlib import Path
import torch
from encoders import detection
from polygrain.compute import processes

encoder, coco, output = map(Path, sys.argv[1:4])
arguments = detection.parse(sys.argv[1:])
torch.manual_seed(0)
model, split = detection.build(encoder, 3, (64,), 96), detection.Split(coco, "train")
found = []
for change in (lambda: detection.train(model, split, arguments, output / "checkpoint"),
               lambda: detection.renew_statistics(model, split, arguments)):
    change()
    found.append({name: tensor.clone() for name, tensor in model.state_dict().items()})
torch.save(found, output / f"{processes.count()}-{processes.rank()}")
"""


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


@pytest.fixture
def head():
    """The head's two ways to maps of boxes, and an image's map of few channels, boxes and sides to call them with."""
    torch.manual_seed(0)
    boxes = detection.BoxMaps(torch.nn.Sequential(torch.nn.Conv2d(3, 5, 3, stride=2), torch.nn.ReLU()), 5)
    corners = [torch.tensor([[0.0, 0, 9, 9], [4, 4, 30, 20], [0, 8, 40, 60]]), torch.tensor([[2.0, 2, 50, 40]] * 2)]
    return boxes, detection.MaskMaps(boxes), {"0": torch.randn(2, 3, 8, 8)}, corners, [(64, 64)] * 2


def test_box_maps__one_more_norm_after_the_group(head):
    boxes, masks, features, corners, sides = head
    cut = detection.MultiScaleRoIAlign(["0"], 14, 0)(features, corners, sides)
    before = boxes.group[1](boxes.group[0](cut))
    plain = torch.nn.functional.batch_norm(before, None, None, training=True)
    assert torch.equal(boxes(features, corners, sides), plain) and isinstance(boxes.group[2], torch.nn.BatchNorm2d)
    assert not masks.state_dict() and not [*masks.parameters()]


def test_mask_maps__are_rows_of_the_boxes_maps_while_training(head):
    boxes, masks, features, corners, sides = head
    maps, seen = boxes(features, corners, sides), boxes.group[2].num_batches_tracked.item()
    chosen = masks(features, [corners[0][[2, 0]], corners[1][:0]], sides)
    assert torch.equal(chosen, maps[[2, 0]]) and boxes.group[2].num_batches_tracked == seen
    boxes(features, corners, sides)
    assert masks(features, [corners[0][:0], corners[1][:0]], sides).shape == (0, 5, 6, 6)


def test_mask_maps__of_other_boxes_in_evaluation(head):
    boxes, masks, features, corners, sides = (
        part.eval() if isinstance(part, torch.nn.Module) else part for part in head
    )
    maps = boxes(features, corners, sides)
    moved = [corner.flip(0) for corner in corners]
    torch.testing.assert_close(masks(features, moved, sides), maps[[2, 1, 0, 4, 3]])


def test_build__all_norms_of_a_resnet_see_all_devices_and_a_vit_has_none(tmp_path):
    resnet = detection.build(write_encoder(tmp_path / "resnet", RESNET), 3, (64,), 96)
    norms = [part for part in resnet.modules() if isinstance(part, torch.nn.BatchNorm2d)]
    assert norms and {type(part) for part in norms} == {WholeBatchNorm2d}
    assert resnet.roi_heads.box_roi_pool.group[-1] in norms and len(norms) == len(plain_norms(RESNET)) + 1
    vit = detection.build(write_encoder(tmp_path / "vit", CONFIG), 3, (64,), 96)
    before = {name: tensor.clone() for name, tensor in vit.state_dict().items()}
    detection.renew_statistics(vit, None, detection.parse(["", "", ""]))
    assert all(torch.equal(before[name], tensor) for name, tensor in vit.state_dict().items())


def plain_norms(config):
    return [part for part in network(config).modules() if isinstance(part, torch.nn.BatchNorm2d)]


@pytest.mark.slow
def test_torchrun__two_processes_hold_the_same_and_see_the_images_of_one(coco, tmp_path):
    """The image's norms come before the boxes, which each process draws, so after one step they are those of one."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    encoder, first = write_encoder(tmp_path / "encoder", RESNET), SMALL[2:]
    for count in (1, 2):
        torchrun(count, program, encoder, coco, tmp_path, "--steps", "1", *first)
        detection.checkpoint.clear(tmp_path / "checkpoint")
    one, *two = (torch.load(tmp_path / name, weights_only=True) for name in ("1-0", "2-0", "2-1"))
    images = [name for name in one[0] if name.startswith("backbone") and "running" in name]
    assert len(images) > 4
    for trained, renewed in two:
        for name in images:
            torch.testing.assert_close(trained[name], one[0][name], rtol=1e-4, atol=1e-5)
        assert any(not torch.equal(trained[name], renewed[name]) for name in images)
    for ours, theirs in zip(*two, strict=True):
        assert all(torch.equal(ours[name], tensor) for name, tensor in theirs.items())


@pytest.mark.slow
def test_main__a_run_killed_while_statistics_are_taken_does_not_train_again(coco, tmp_path, monkeypatch):
    encoder = write_encoder(tmp_path / "encoder", RESNET)
    words = [[str(encoder), str(coco), str(tmp_path / name), *SMALL] for name in ("whole", "killed")]
    detection.main(detection.parse(words[0]))
    anew, steps = detection.renew_statistics, []

    def killed(*arguments):
        anew(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(detection, "renew_statistics", killed)
    with pytest.raises(KeyboardInterrupt):
        detection.main(detection.parse(words[1]))
    monkeypatch.setattr(detection, "renew_statistics", anew)
    original = detection.drawn
    monkeypatch.setattr(detection, "drawn", lambda step, *rest: steps.append(step) or original(step, *rest))
    detection.main(detection.parse(words[1]))
    assert steps == [4, 5]
    contents = [(tmp_path / name / "weights.safetensors").read_bytes() for name in ("whole", "killed")]
    assert contents[0] == contents[1]


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
