"""Boxes as COCO and VOC lay them out."""

import json

import pytest

from polygrain.mpcl.detection import scenes
from tests.test_mpcl_detection import write_voc


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
    taught, tested, classes = scenes.read(write_coco(tmp_path), "coco")
    assert classes == 2 and [scene.file for scene in taught] == [tmp_path / "train2017/9.jpg"]
    assert taught[0].rows["boxes"].tolist() == [[1, 2, 11, 22]] and taught[0].rows["labels"].tolist() == [1]
    assert [scene.file.name for scene in tested] == ["5.jpg", "9.jpg"] and tested[0].rows["boxes"].shape == (0, 4)
    assert tested[1].rows["ignored"].tolist() == [False, True] and tested[1].rows["labels"].tolist() == [1, 2]


def test_read__voc_counts_from_one_and_trains_on_what_is_difficult(tmp_path):
    write_voc(tmp_path, 2, 2)
    for number in (0, 2):
        file = tmp_path / f"VOC2007/Annotations/00000{number}.xml"
        file.write_text(file.read_text().replace("<difficult>0", "<difficult>1"))
    taught, tested, classes = scenes.read(tmp_path, "voc")
    assert classes == 2 and [scene.file.name for scene in taught] == ["000000.jpg", "000001.jpg"]
    left, top, right, bottom = taught[0].rows["boxes"][0]
    assert (right - left, bottom - top) == (32, 32) and taught[0].file.exists()
    assert [scene.rows["labels"].tolist() for scene in taught] == [[2], [1]]  # red is 0's, green 1's, by name
    assert not any(scene.rows["ignored"].any() for scene in taught)
    assert [scene.rows["ignored"].tolist() for scene in tested] == [[True], [False]]


@pytest.mark.parametrize("layout", ["coco", "voc"])
def test_read__another_layout_is_refused(tmp_path, layout):
    with pytest.raises(ValueError, match=f"not laid out as {layout}|no boxes to train on"):
        scenes.read(tmp_path, layout)


def test_read__a_damaged_file_is_refused(tmp_path):
    write_voc(tmp_path, 2, 2)
    (tmp_path / "VOC2007/Annotations/000001.xml").write_text("<annotation>")
    with pytest.raises(ValueError, match="not laid out as voc: ParseError"):
        scenes.read(tmp_path, "voc")
