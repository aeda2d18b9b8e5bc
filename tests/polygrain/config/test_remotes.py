import pytest

from polygrain.config.remotes import renew
from polygrain.sources.streams import place
from polygrain.sources.streams.place import File, Location


@pytest.fixture
def listed(tmp_path, monkeypatch):
    """A folder with a remote task, and what its object store holds: a list to be changed."""
    (tmp_path / "params.yaml").write_text(
        "tasks: {shoes: {source: remote}, bags: {source: folder}}\npaths: {shoes: shoes.json, bags: shoes.json}\n"
    )
    files = [File("a.png", 1, "etag")]
    monkeypatch.setattr(place, "remote", lambda url: Location(url, list(files)))
    (tmp_path / "shoes.json").write_text(place.text_of(place.remote("s3://pictures/shoes")))
    return files


def test_renew__leaves_alone_what_is_the_same(listed, tmp_path):
    before = (tmp_path / "shoes.json").stat().st_ino  # a file that is written anew has another one
    assert renew(tmp_path) == []
    assert (tmp_path / "shoes.json").stat().st_ino == before


def test_renew__another_name_size_or_tag_is_another_listing(listed, tmp_path):
    for change in (File("a.png", 2, "etag"), File("b.png", 2, "etag"), File("b.png", 2, "other")):
        listed[0] = change
        assert renew(tmp_path) == ["shoes: s3://pictures/shoes has changed: its stages run again"]
        assert renew(tmp_path) == []


def test_renew__a_store_out_of_reach_keeps_its_listing(listed, tmp_path, monkeypatch):
    def fail(url):
        raise ValueError(f"{url} cannot be listed (timeout)")

    monkeypatch.setattr(place, "remote", fail)
    before = (tmp_path / "shoes.json").read_text()
    assert renew(tmp_path) == ["shoes: its last listing stays: s3://pictures/shoes cannot be listed (timeout)"]
    assert (tmp_path / "shoes.json").read_text() == before
