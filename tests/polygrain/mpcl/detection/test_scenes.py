"""Boxes as COCO lays them out."""

import json

import pytest

from polygrain.mpcl.detection import scenes


def write_coco(root):
    """Category numbers with a gap, a crowd, a flat box and an empty image, as in the original."""
    (root / "annotations").mkdir(parents=True)
    for part in ("train", "val"):
        content = {"images": [{"id": 5, "file_name": "5.jpg"}, {"id": 9, "file_name": "9.jpg"}], "annotations": []}
        for box, kind, crowd in (([1, 2, 10, 20], 3, 0), ([0, 0, 30, 30], 7, 1), ([4, 4, 0.5, 9], 3, 0)):
            item = {"image_id": 9, "bbox": box, "category_id": kind, "iscrowd": crowd}
            content["annotations"].append(item)
        (root / f"annotations/instances_{part}2017.json").write_text(json.dumps(content))
    return root


def test_read__coco_trains_without_crowds_and_empty_images_and_tests_on_all(tmp_path):
    taught, tested, classes = scenes.read(write_coco(tmp_path))
    assert classes == 2 and [scene.file for scene in taught] == [tmp_path / "train2017/9.jpg"]
    assert taught[0].rows["boxes"].tolist() == [[1, 2, 11, 22]] and taught[0].rows["labels"].tolist() == [1]
    assert [scene.file.name for scene in tested] == ["5.jpg", "9.jpg"] and tested[0].rows["boxes"].shape == (0, 4)
    assert tested[1].rows["ignored"].tolist() == [False, True] and tested[1].rows["labels"].tolist() == [1, 2]


def test_read__another_layout_and_a_damaged_file_are_refused(tmp_path):
    with pytest.raises(ValueError, match="not laid out as COCO"):
        scenes.read(tmp_path)
    write_coco(tmp_path)
    (tmp_path / "annotations/instances_val2017.json").write_text("{")
    with pytest.raises(ValueError, match="not laid out as COCO: JSONDecodeError"):
        scenes.read(tmp_path)
