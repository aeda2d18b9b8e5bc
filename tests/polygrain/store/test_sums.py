import json
import subprocess

import numpy as np
import pytest

from polygrain.runner import outputs
from polygrain.store import arrays, sums
from polygrain.store.reading import read_json


def write(folder):
    """An output as stages write it: files, one of them in a folder below, and a stored array."""
    with outputs.folder(folder) as partial:
        (partial / "inner").mkdir()
        for place in (partial, partial / "inner"):
            (place / "a.json").write_text(json.dumps({"value": 1}))
        arrays.write(partial / "labels.zarr", np.arange(10))
    return folder


def test_write__what_sha256sum_checks_in_every_folder_and_the_same_bytes_again(tmp_path):
    first, second = write(tmp_path / "first"), write(tmp_path / "second")
    assert sorted(sums.listed(first)) == ["a.json", "labels.zarr/zarr.json"]
    assert sorted(sums.listed(first / "inner")) == ["a.json"]
    for folder in (first, first / "inner"):
        subprocess.run(["sha256sum", "--check", "--strict", "--quiet", sums.NAME], cwd=folder, check=True)
    assert (first / sums.NAME).read_bytes() == (second / sums.NAME).read_bytes()


@pytest.mark.parametrize("place", [".", "inner"])
@pytest.mark.parametrize("content", ['{"value": 2}', "", '{"value": 1} '])
def test_reading__another_file_than_was_written_is_refused(tmp_path, place, content):
    file = write(tmp_path / "out") / place / "a.json"
    assert read_json(file) == {"value": 1}
    file.write_text(content)
    with pytest.raises(ValueError, match=r"a.json is missing or damaged \(its checksum .*SHA256SUMS; .*dvc checkout"):
        read_json(file)


@pytest.mark.parametrize("content", [b"", b"nonsense\n", b"\xff\xfe", b"0" * 64 + b"  other.json\n"])
def test_reading__a_damaged_list_is_no_reason_to_believe_a_file(tmp_path, content):
    folder = write(tmp_path / "out")
    (folder / sums.NAME).write_bytes(content)
    with pytest.raises(ValueError, match=r"a.json is missing or damaged .*SHA256SUMS"):
        read_json(folder / "a.json")


def test_open__what_a_stored_array_says_of_itself_is_compared_too(tmp_path):
    folder = write(tmp_path / "out")
    file = folder / "labels.zarr/zarr.json"
    file.write_text(file.read_text().replace('"order"', '"ordem"').replace("\n}", "\n} "))
    with pytest.raises(ValueError, match=r"labels.zarr is missing or damaged \(its checksum"):
        arrays.open(folder / "labels.zarr")


def test_reading__a_folder_of_a_users_own_has_no_list_and_is_taken_as_it_is(tmp_path):
    (tmp_path / "a.json").write_text("{}")
    assert read_json(tmp_path / "a.json") == {}


def test_expects__a_file_that_got_lost_is_still_expected(tmp_path):
    folder = write(tmp_path / "out")
    (folder / "a.json").unlink()
    assert sums.expects(folder / "a.json") and sums.expects(folder / "labels.zarr")
    assert not sums.expects(folder / "b.json") and not sums.expects(tmp_path / "a.json")
