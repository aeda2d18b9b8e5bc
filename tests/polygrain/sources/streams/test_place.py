import json
import os

import pytest

from polygrain.sources.streams import place


def test_local__a_file_or_those_of_a_folder_by_pattern(tmp_path):
    folder = tmp_path / "shoes [2023]"  # no pattern
    folder.mkdir()
    for name in ("b.tar", "a.tar", "x.txt", "val.tar"):
        (folder / name).write_bytes(b"1")
    assert [file.name for file in place.local(folder, ".tar").files] == ["a.tar", "b.tar", "val.tar"]
    assert [file.name for file in place.local(folder, ".tar", "[ab].*").files] == ["a.tar", "b.tar"]
    assert [file.name for file in place.local(folder / "x.txt", ".tar").files] == ["x.txt"]
    before = place.local(folder, ".tar").digest
    (folder / "a.tar").write_bytes(b"22")
    assert place.local(folder, ".tar").digest != before


def test_local__a_folder_that_cannot_be_listed_stops_it(tmp_path, monkeypatch):
    for name in ("label=a", "label=b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "0.parquet").touch()
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: scandir(f"{path}/gone" if str(path).endswith("a") else path))
    with pytest.raises(FileNotFoundError):
        place.local(tmp_path, ".parquet")


def test_local__raise_on_nothing_and_on_a_link_that_leads_out(tmp_path):
    with pytest.raises(ValueError, match=r"holds no file like \* with the ending \.tar"):
        place.local(tmp_path, ".tar")
    with pytest.raises(ValueError, match=r"gone does not exist: give a file that ends in \.parquet"):
        place.local(tmp_path / "gone", ".parquet")
    (tmp_path / "in").mkdir()
    (tmp_path / "out.tar").touch()
    (tmp_path / "in/a.tar").symlink_to(tmp_path / "out.tar")
    with pytest.raises(ValueError, match=r"a\.tar: link leads outside the folder"):
        place.local(tmp_path / "in", ".tar")


@pytest.mark.parametrize("url", ["s3://key:secret@bucket/x", "file:///etc", "s3://", "s3://b/../x?y=1"])
def test_require_address__another_address_is_refused_without_its_secret(url):
    with pytest.raises(ValueError, match="is no s3://bucket/prefix") as caught:
        place.require_address(url)
    assert "secret" not in str(caught.value).split("credentials")[0].replace("user, password", "")


def test_address_in__raise_on_another_file(tmp_path):
    for content in ("[]", '{"url": "file:///etc/passwd"}'):
        (tmp_path / "a.json").write_text(content)
        with pytest.raises(ValueError, match=r"is no (listing of an object store|s3://bucket/prefix)"):
            place.address_in(tmp_path / "a.json")


def test_remote__is_what_its_listing_says_or_refused(tmp_path, object_store, monkeypatch):
    with pytest.raises(ValueError, match=r"s3://pictures/x holds no object"):
        place.remote("s3://pictures/x/")
    object_store.pipe({"pictures/x/b/2.png": b"22", "pictures/x/a.png": b"1", "pictures/xy.png": b"3"})
    location = place.remote("s3://pictures/x/")
    assert [file[:2] for file in location.files] == [("a.png", 1), ("b/2.png", 2)]
    listing = tmp_path / "x.json"
    listing.write_text(place.text_of(location))
    values = json.loads(listing.read_text())
    assert values | {"sha256": ""} == {"url": "s3://pictures/x", "files": 2, "bytes": 3, "sha256": ""}
    assert place.listed(listing).digest == location.digest
    object_store.pipe("pictures/x/a.png", b"2")  # of the same size
    with pytest.raises(ValueError, match=r"s3://pictures/x no longer agrees with .*x\.json"):
        place.listed(listing)
    object_store.rm("pictures/x/a.png")
    with pytest.raises(ValueError, match=r"a\.png cannot be read"):
        location.open(location.files[0])
    monkeypatch.setenv("AWS_ENDPOINT_URL", "no address")
    with pytest.raises(ValueError, match=r"s3://pictures/x cannot be listed"):
        place.remote("s3://pictures/x")
