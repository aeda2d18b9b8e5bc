"""Results go to the team and come back: a second clone runs nothing and has the same bytes."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from pipeline import server, share
from tests.helpers import project, toy
from tests.pipeline import sshd


@pytest.fixture(scope="module")
def team(ran, tmp_path_factory) -> Path:
    """A folder with a repository whose every stage has run, which ships no dvc.lock, and a remote that has it all."""
    folder = tmp_path_factory.mktemp("team")
    shutil.copytree(ran, folder / "owner")
    share.push(folder / "owner", str(folder / "remote"))
    return folder


@pytest.fixture
def owner(team, tmp_path) -> Path:
    """A copy of the repository, with a copy of the remote beside it, which it does not know yet."""
    shutil.copytree(team, tmp_path, dirs_exist_ok=True)
    (tmp_path / "owner/.dvc/config.local").unlink()
    return tmp_path / "owner"


def exchange(owner: Path, url: str, settings: dict[str, str] | None = None, **environment: str) -> None:
    """Shares, and fetches in a clone."""
    clone = toy.clone(owner, "clone")
    for folder in (owner, clone):
        share.use_remote(folder, url)
        for name, value in (settings or {}).items():
            toy.run(folder, "dvc", "remote", "modify", "--local", share.REMOTE, name, value)
    assert "The results of 8 of 8 stages" in toy.polygrain(owner, "share", **environment)
    output = toy.polygrain(clone, "fetch", **environment)
    assert "All 8 stages are up to date" in output and "Running stage" not in output
    assert toy.texts(clone) == toy.texts(owner) and len(toy.texts(owner)) == 9
    assert toy.up_to_date(clone)


@pytest.mark.slow
def test_push__the_folder_of_a_group_stays_one(owner, tmp_path):
    """Every folder in it, of results and of runs, whatever the user's umask."""
    (tmp_path / "new").mkdir()
    (tmp_path / "new").chmod(0o2775)
    umask = os.umask(0o022)
    try:
        share.push(owner, str(tmp_path / "new"))
    finally:
        os.umask(umask)
    folders = [path for path in (tmp_path / "new").rglob("*") if path.is_dir()]
    assert {"files", "runs"} <= {path.name for path in folders}
    assert {path.stat().st_mode & 0o7777 for path in folders} == {0o2775}


@pytest.mark.slow
@pytest.mark.skipif(sshd.PROGRAM is None, reason="no ssh server is installed here: apt-get install openssh-server")
def test_exchange__ssh(owner, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    with sshd.served(tmp_path) as (url, key):
        exchange(owner, url, {"keyfile": key, "allow_agent": "false"}, HOME=str(tmp_path))


@pytest.mark.skipif(sshd.PROGRAM is None, reason="no ssh server is installed here: apt-get install openssh-server")
def test_require_known_host__a_changed_or_unknown_key_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    with sshd.served(tmp_path) as (url, key):
        share.require_known_host(url)
        known = tmp_path / ".ssh/known_hosts"
        for other in (known.read_text().split(" ", 1)[0] + " " + Path(f"{key}.pub").read_text(), ""):
            known.write_text(other)
            with pytest.raises(ValueError, match="not the one in your known_hosts"):
                share.require_known_host(url)
    share.require_known_host(url)  # nobody answers: DVC says so
    share.require_known_host("/mnt/folder")


def test_require_known_host__without_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "asyncssh", None)
    with pytest.raises(ValueError, match=r"needs asyncssh, which is not installed: pip install -e '.\[share\]'"):
        share.require_known_host("ssh://user@host/srv")


@pytest.fixture
def s3(tmp_path) -> Iterator[str]:
    """The address of an S3 server on loopback with one bucket, `team`."""
    port = server.free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with (tmp_path / "s3.log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        address, deadline = f"http://127.0.0.1:{port}", time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(urllib.request.Request(f"{address}/team", method="PUT")).close()
                break
            except OSError:
                assert process.poll() is None and time.monotonic() < deadline, "the S3 server did not start"
                time.sleep(0.1)
        yield address
        process.terminate()


@pytest.mark.slow
def test_exchange__s3(owner, s3):
    keys = {"AWS_ACCESS_KEY_ID": "toy", "AWS_SECRET_ACCESS_KEY": "toy", "AWS_DEFAULT_REGION": "us-east-1"}
    exchange(owner, "s3://team/project", {"endpointurl": s3}, **keys)


@pytest.mark.slow
def test_fetch__nothing_is_left_to_run(owner, tmp_path):
    """In a clone whose own dvc.lock has the same inputs, and results that nobody has."""
    clone = toy.clone(owner, "clone")
    (clone / "dvc.lock").write_text((owner / "dvc.lock").read_text().replace("md5: ", "md5: 0"))
    message = share.fetch(clone, str(tmp_path / "remote"))
    assert message.startswith("All 8 stages are up to date") and toy.texts(clone) == toy.texts(owner)
    assert "Running stage" not in toy.polygrain(clone, "run") and toy.up_to_date(clone)


def test_fetch__some_stages_and_what_nobody_has_shared(owner, tmp_path):
    """A stage of other inputs is not run but named; a damaged object is not used."""
    remote, second = tmp_path / "remote", toy.clone(owner, "second")
    message = share.fetch(second, str(remote), ["first@f1"])
    assert message == "All 2 stages are up to date: there is nothing to run."
    assert (second / "data/first/f1/text").exists() and not (second / "data/second").exists()
    params = second / "params.json"
    params.write_text(params.read_text().replace('"s03"', '"s04"'))
    with pytest.raises(ValueError, match=r"^6 of 8 stages are up to date\. .*second@s04, last$"):
        share.fetch(second, None)
    assert not (second / "data/second/s04").exists()

    third = toy.clone(owner, "third")
    for file in remote.rglob("files/md5/??/*"):
        if file.suffix != ".dir" and file.read_text() == "source\n":
            file.chmod(0o644)
            file.write_text("damaged\n")
    with pytest.raises(ValueError, match="are not shared"):
        share.fetch(third, str(remote))
    assert toy.texts(third) == {}


@pytest.mark.slow
@pytest.mark.parametrize("gone", ["runs/*/*/*", "files/md5/*/*.dir"])
def test_fetch__what_is_not_shared_runs_afterwards(owner, tmp_path, gone):
    """Also where the remote has the folder of a run and no run in it, or no list of a result's files."""
    remote, second = tmp_path / "remote", toy.clone(owner, "second")
    params = second / "params.json"
    params.write_text(params.read_text().replace('"s03"', '"s04"'))
    for file in remote.glob(gone):
        file.unlink()
    with pytest.raises(ValueError, match="`polygrain run` runs the rest"):
        share.fetch(second, str(remote))
    output = toy.polygrain(second, "run")
    assert "Running stage 'source'" in output and "Running stage 'second@s04'" in output
    assert toy.up_to_date(second)


@pytest.mark.slow
def test_fetch__data_that_dvc_tracks_and_what_dvc_lock_names(tmp_path):
    """The data by DVC's own pull; results that the commit names also where their inputs are others here, or gone."""
    owner, url = tmp_path / "owner", str(tmp_path / "remote")
    given = {"out/a.txt": "far", "raw/a.txt": "1", "raw/b.txt": "2", "values.yaml": "word: one\n"}
    stages = """\
vars: [values.yaml]
stages:
  a: {cmd: mkdir data && cat raw/*.txt > data/a, deps: [raw], outs: [data/a]}
  b: {cmd: "cat ../out/a.txt > data/b", deps: [../out], outs: [data/b]}
  c: {cmd: "cat data/b data/a > data/c; echo ${word}", deps: [data/a, data/b], outs: [data/c]}
  d: {cmd: cp raw/a.txt data/d, deps: [raw/a.txt], outs: [data/d]}
"""
    toy.found(owner, {"dvc.yaml": stages, "values.yaml": given.pop("values.yaml")})
    for name, text in given.items():
        file = (tmp_path if name.startswith("out") else owner) / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    toy.run(owner, "dvc", "add", "-q", "raw")
    toy.run(owner, "dvc", "repro", "-q")
    toy.run(owner, "dvc", "freeze", "d")
    toy.commit(owner)
    assert "The results of 5 of 5 stages" in share.push(owner, url)
    second = toy.clone(owner, "second")
    assert "All 5 stages are up to date" in share.fetch(second, url)
    assert toy.texts(second) == toy.texts(owner) and (second / "raw/b.txt").read_text() == "2"
    (second / "raw/new.txt").write_text("mine")  # a stage reads it now, and a fetch leaves it alone
    assert share.fetch(second, None).endswith("than here: a.") and (second / "raw/new.txt").exists()

    (tmp_path / "out").rename(tmp_path / "away")
    third = toy.clone(owner, "third")
    message = share.fetch(third, url)
    assert message.startswith(f"4 of 5 stages are up to date. Not here, though stages read it: {tmp_path}/out. ")
    assert message.endswith("than here: b.") and toy.texts(third) == toy.texts(owner)
    (third / "values.yaml").write_text("word: two\n")
    assert share.fetch(third, url).endswith("than here: b, c.")
    assert (owner / "dvc.lock").read_text() == (third / "dvc.lock").read_text()


def test_fetch__a_list_of_files_that_leads_out_of_its_output(owner, tmp_path):
    """It has its own name, so DVC finds nothing wrong with it; a run names it as its result."""
    remote = tmp_path / "remote"
    recorded = YAML(typ="safe").load((owner / "dvc.lock").read_text())["stages"]["source"]["outs"][0]["md5"]
    entry = json.loads((remote / "files/md5" / recorded[:2] / recorded[2:]).read_text())[0]
    text = json.dumps([entry | {"relpath": "../../../planted"}])
    digest = hashlib.md5(text.encode()).hexdigest() + ".dir"
    file = remote / "files/md5" / digest[:2] / digest[2:]
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    for run in remote.glob("runs/*/*/*"):
        run.write_text(run.read_text().replace(recorded, digest))
    second = toy.clone(owner, "second")
    with pytest.raises(ValueError, match="refused"):
        share.fetch(second, str(remote))
    assert toy.texts(second) == {} and not list(tmp_path.rglob("planted"))


def ran(said: str) -> list[str]:
    """The stages of the project that have run, by DVC's line before or by their own after it."""
    lines = re.findall(r"^Running stage '.*?([\w@]+)'|^([\w@-]+): .* \(\d+\.\d s\)$", said, re.M)
    return sorted({before or after for before, after in lines})


@pytest.mark.slow
def test_team__three_clones_at_three_paths_run_only_what_changed(tmp_path):
    """Photographs by `dvc add`, in a folder inside and in one outside; by our commands, and by plain DVC."""
    owner, url, words = tmp_path / "a/owner", str(tmp_path / "remote"), ["--profile", "shop"]
    project.copy_project(owner)
    places = ["../outside", "photos", "data/raw/shots"]
    for seed, place in enumerate(places):
        project.draw_images(owner / place, seed)
    names = [Path(place).name for place in places]
    images, features = ([f"{stage}@{name}" for name in names] for stage in ("images", "features"))
    toy.run(owner, "dvc", "add", "-q", "photos")
    given = [word for place in places for word in ("--images", place)]
    toy.polygrain(owner, "new", "shop", *given, "--encoder", "encoders/vit48")
    first = ["encoder", *features, *images, "resolution"]
    assert ran(toy.polygrain(owner, "run", "features", *words)) == first
    toy.commit(owner)
    toy.polygrain(owner, "share", *words, "--remote", url)

    second, third = clones = [tmp_path / "b/far/second", tmp_path / "third"]
    for clone in clones:
        toy.run(tmp_path, "git", "clone", "-q", str(owner), str(clone))
    fetch = ["fetch", "features", *words, "--remote", url]
    assert f"Not here, though stages read it: {second}/data/raw/shots. " in toy.polygrain(second, *fetch)
    for clone in clones:
        shutil.copytree(owner / "data/raw/shots", clone / "data/raw/shots")
    assert "are up to date: there" in toy.polygrain(second, *fetch)
    # Again where all but the photographs is gone.
    toy.run(second, "git", "clean", "-fdxq", "-e", "/data/raw", "-e", "__pycache__", "-e", ".work")
    assert not (second / "profiles/shop/data").exists() and not (second / "photos").exists()
    assert "are up to date: there" in toy.polygrain(second, *fetch)
    assert toy.polygrain(second, "run", "--dry", "features", *words).startswith("0 of ")
    with (second / "profiles/shop/values.yaml").open("a") as file:
        file.write("features: {dtype: float32}\n")
    said = toy.polygrain(second, "run", "features", *words)
    assert said.startswith("3 of ") and ran(said) == features
    toy.commit(second)
    toy.polygrain(second, "share", *words)

    toy.run(third, "git", "pull", "-q", str(second))
    toy.run(third, "dvc", "remote", "add", "--default", "--local", "team", url)
    profile = third / "profiles/shop"
    toy.run(profile, "dvc", "pull", "../../photos.dvc", "images", "encoder", "resolution", "features")
    assert ran(toy.run(profile, "dvc", "repro", "features")) == []
    toy.run(owner, "git", "pull", "-q", str(second))
    assert "are up to date: there" in toy.polygrain(owner, "fetch", "features", *words)
    assert ran(toy.polygrain(owner, "run", "features", *words)) == []
    # The same photographs at other paths: only the stage that reads them looks.
    values = profile / "values.yaml"
    text = values.read_text()
    for name in names:
        path = re.search(rf"path: (\S*/{name})\b", text)[1]
        shutil.copytree(profile / path, third / "moved" / name)
        text = text.replace(path, f"../../moved/{name}")
    values.write_text(text)
    assert ran(toy.polygrain(third, "run", "features", *words)) == images


@pytest.mark.parametrize(("path", "md5"), [("a/../../b", "0" * 32), (".git/hooks/x", "0" * 32), ("a", "../../b")])
def test_require_inside__refuses_and_deletes(tmp_path, path, md5):
    file = tmp_path / "list"
    file.write_text(json.dumps([{"relpath": "a/b", "md5": "0" * 32}]))
    share.require_inside(file, "data/source")
    file.write_text(json.dumps([{"relpath": path, "md5": md5}]))
    with pytest.raises(ValueError, match="data/source is refused"):
        share.require_inside(file, "data/source")
    assert not file.exists()


@pytest.mark.slow
def test_push__says_what_is_not_up_to_date_and_what_is_missing(owner, tmp_path):
    with pytest.raises(ValueError, match="no remote is known"):
        share.push(owner, None)
    fresh, remote = toy.clone(owner, "fresh"), str(tmp_path / "remote")
    for name in ("shop", "team"):
        (fresh / "profiles" / name).mkdir(parents=True)
        (fresh / "profiles" / name / "dvc.lock").touch()
    said = toy.polygrain(fresh, "share", "--remote", remote, check=False)
    assert "no stage has run" in said and said.endswith("; there are results of --profile shop, --profile team\n")
    shutil.rmtree(fresh / "profiles")
    assert share.push(fresh, remote).startswith("The results of 0 of 8 stages")  # as `flow --workers` asks
    with pytest.raises(ValueError, match="ASCII"):
        share.push(owner, "/données")
    params = owner / "params.json"
    params.write_text(params.read_text().replace('"s03"', '"s04"'))
    assert "not all of it is shared: second@s04, last" in share.push(owner, str(tmp_path / "remote"))
    with pytest.raises(ValueError, match="failed"):
        share.push(owner, "/proc/nothing/here")
