from pathlib import Path

import s3fs

from polygrain.new.folders import examine
from polygrain.sources.streams import place
from polygrain.sources.streams.place import File, Location
from tests.helpers import streams


def sample_remote(root: Path, contents: dict[str, bytes]) -> str:
    """In a store that the test has put in the place of S3."""
    s3fs.S3FileSystem().update({f"pictures/shoes/{path}": content for path, content in contents.items()})
    return "s3://pictures/shoes"


def test_find__an_object_store_by_its_first_tar(tmp_path, monkeypatch):
    sizes = []
    for number in range(3):
        file = streams.tar(tmp_path / f"{number}.tar", *streams.samples(10 * number, 10 * number + 10))
        sizes.append(file.stat().st_size)
    files = [File(f"{number}.tar", size, "") for number, size in enumerate(sizes)]
    monkeypatch.setattr(place, "remote", lambda url: Location(str(tmp_path), files))
    found = examine("s3://pictures/x")
    assert found.is_estimate and found.classes == {"0": 12, "1": 9, "2": 9} and '"files": 3' in found.listing
