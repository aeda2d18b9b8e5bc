"""One flipped byte, in the workspace or in the cache, is found before a run and does not stay."""

import hashlib
import shutil
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from pipeline import cache
from tests.pipeline import toy


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    folder = toy.make(tmp_path_factory.mktemp("cache") / "made", first=1, second=1)
    toy.run(folder, "dvc", "config", "cache.type", "copy")
    toy.run(folder, "dvc", "repro")
    return folder


@pytest.fixture
def folder(made, tmp_path) -> Path:
    # The recorded times of files stay true only in the very folder: here all are read again.
    return Path(shutil.copytree(made, tmp_path / "clone", symlinks=True))


def objects(folder: Path) -> list[Path]:
    return sorted((folder / ".dvc/cache/files/md5").glob("*/*"))


def flip(file: Path) -> None:
    """As root may, and as its owner after a chmod: the file stays read-only."""
    mode = file.stat().st_mode
    file.chmod(0o644)
    data = bytearray(file.read_bytes())
    data[0] ^= 1
    file.write_bytes(data)
    file.chmod(mode)


def test_damaged__nothing(folder):
    assert cache.damaged(folder) == []


def test_damaged__any_object(folder):
    for file in sorted(objects(folder), key=lambda file: file.suffix):  # a list that is gone names no files
        flip(file)
        (name, *_) = cache.damaged(folder)
        assert name.startswith("data/") and not file.exists()
    assert cache.damaged(folder) == []


def test_mend__says_what_was_taken_out(folder, capsys):
    for file in objects(folder):
        flip(file)
    cache.mend(folder)
    said = capsys.readouterr().err
    assert said.startswith("damaged in the cache, so taken out and made again where it is needed: data/")


@pytest.mark.slow
@pytest.mark.parametrize("links", ["copy", "hardlink"])
def test_repro__after_a_flipped_byte_the_same_results(tmp_path, links):
    folder = toy.make(tmp_path / "toy", first=1, second=1)
    toy.run(folder, "dvc", "config", "cache.type", links)
    toy.run(folder, "dvc", "repro")
    honest = toy.texts(folder)
    flip(folder / "data/first/f0/text")
    assert bool(cache.damaged(folder)) == (links == "hardlink")
    toy.run(folder, "dvc", "repro")
    assert toy.texts(folder) == honest


def test_config__no_workspace_file_is_a_link_into_the_cache():
    assert 'type = "reflink,copy"' in (toy.ROOT / ".dvc/config").read_text()


def test_damaged__a_list_that_leads_out(folder):
    """As a plain `dvc pull` brings it: the hash fits, the paths do not."""
    data = b'[{"md5": "%s", "relpath": "../../planted"}]' % (b"0" * 32)
    digest = hashlib.md5(data).hexdigest() + ".dir"
    file = folder / ".dvc/cache/files/md5" / digest[:2] / digest[2:]
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(data)
    lock = folder / "dvc.lock"
    entry = YAML(typ="safe").load(lock.read_text())["stages"]["last"]["outs"][0]
    lock.write_text(lock.read_text().replace(entry["md5"], digest))
    (said,) = cache.damaged(folder)
    assert said.startswith("data/last: its list of files names '../../planted', which does not stay")
    assert not file.exists()
