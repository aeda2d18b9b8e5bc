"""What a hostile remote hands out is named and used nowhere."""

import hashlib
import shutil
from pathlib import Path

import pytest
from benchmarks.hostile import remotes

from pipeline import share
from tests.pipeline import toy

SOURCE = hashlib.md5(b"source\n").hexdigest()


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> remotes.World:
    return remotes.World(tmp_path_factory.mktemp("world"))


@pytest.fixture
def case(world, tmp_path) -> remotes.Case:
    return remotes.Case(world, tmp_path)


def refused(case: remotes.Case) -> str:
    """The error of a fetch that has changed nothing but DVC's own folders."""
    before = remotes.around(case)
    with pytest.raises(ValueError, match="handed out what was not recorded") as error:
        share.fetch(case.clone, str(case.remote))
    assert remotes.around(case) == before and toy.texts(case.clone) == {}
    return str(error.value)


def cached(case: remotes.Case, digest: str) -> bool:
    return (case.clone / ".dvc/cache/files/md5" / digest[:2] / digest[2:]).exists()


def test_fetch__a_list_that_leads_into_git(case):
    """As a commit to dvc.lock would bring it: the hash fits, the paths do not."""
    digest = case.record(remotes.LISTS["relpath parents"])
    said = refused(case)
    assert f"data/source: its list of files names '{remotes.HOOK}', which does not stay in the output's folder" in said
    assert not cached(case, digest) and not (case.clone / ".git/hooks/post-checkout").exists()


def test_fetch__a_list_whose_hashes_lead_out_of_the_cache(case):
    """DVC cuts the hash into a path of the cache, and would write there before anything is checked out."""
    case.record(remotes.LISTS["md5 parents"])
    (case.remote / "planted").write_text("x")
    assert "gives 'text' the md5 '../../../planted', which is none" in refused(case)


def test_fetch__other_bytes(case):
    case.object(SOURCE).write_bytes(b"other!\n")
    assert f"data/source/text: the remote's object {SOURCE} has other bytes" in refused(case)
    assert not cached(case, SOURCE)


@pytest.mark.slow
def test_fetch__other_list(case):
    digest = case.world.recorded()
    shutil.copy(case.object(case.world.recorded("last")), case.object(digest))
    assert f"data/source: the remote's object {digest} has other bytes" in refused(case)


@pytest.mark.slow
def test_fetch__after_the_remote_was_mended(case):
    remotes.flip(case.object(SOURCE))
    refused(case)
    remotes.flip(case.object(SOURCE))
    assert share.fetch(case.clone, None).startswith("All 4 stages are up to date")
    assert toy.texts(case.clone) == case.world.honest


@pytest.mark.slow
def test_fetch__a_damaged_object_here_is_brought_again(case):
    """DVC believes a cached file that is read-only."""
    share.fetch(case.clone, str(case.remote))
    file = case.clone / ".dvc/cache/files/md5" / SOURCE[:2] / SOURCE[2:]
    file.chmod(0o644)
    file.write_bytes(b"other!\n")
    file.chmod(0o444)
    shutil.rmtree(case.clone / "data")
    assert share.fetch(case.clone, None).startswith("All 4 stages are up to date")
    assert toy.texts(case.clone) == case.world.honest


def test_fetch__a_run_for_other_outputs(case):
    case.rewrite(remotes.outs(path="Makefile"), names=False)
    assert "is not the run that its name says" in refused(case)
    assert not list((case.clone / ".dvc/cache").glob("runs/*/*/*"))


@pytest.mark.slow
def test_fetch__a_run_decides_the_bytes_of_its_own_outputs_and_nothing_else(case):
    """What is promised ends here: who writes to the remote may lie about results that dvc.lock does not record."""
    other = hashlib.md5(b"other\n").hexdigest()
    case.object(other).parent.mkdir(parents=True, exist_ok=True)
    case.object(other).write_bytes(b"other\n")
    listed = case.record(b'[{"md5": "%s", "relpath": "text"}]' % other.encode())
    before = remotes.around(case)

    def lie(run: dict) -> None:
        if run["outs"][0]["path"] == "data/source":
            run["outs"][0]["md5"] = listed

    case.rewrite(lie)
    for file in case.runs():
        if listed not in file.read_text() and b"data/source" in file.read_bytes().split(b"outs:")[-1]:
            file.unlink()
    share.fetch(case.clone, str(case.remote))
    assert remotes.around(case) == before
    assert toy.texts(case.clone)["data/source/text"] == b"other\n"


@pytest.mark.slow
def test_fetch__the_quarantine_of_a_killed_fetch_is_removed(case):
    left = case.clone / ".dvc/tmp/quarantine-left"
    left.mkdir(parents=True)
    share.fetch(case.clone, str(case.remote))
    assert not list((case.clone / ".dvc/tmp").glob("quarantine-*"))


def test_use_remote__is_not_dvcs_default(case):
    """Plain `dvc checkout` and `dvc repro` would read missing lists of files from a default remote, unchecked."""
    toy.run(case.clone, "dvc", "remote", "add", "--local", "--default", share.NAME, str(case.remote))
    assert share.use_remote(case.clone, None) == share.NAME
    assert toy.run(case.clone, "dvc", "config", "core.remote", check=False) == ""
    case.record(remotes.LISTS["relpath parents"])
    toy.run(case.clone, "dvc", "checkout", "--allow-missing")
    assert not Path(case.clone, ".git/hooks/post-checkout").exists() and toy.texts(case.clone) == {}


@pytest.mark.parametrize("url", ["", "-x", "/x; touch P", "/x\n[core]", "$(touch P)", "'/x'"])
def test_use_remote__refuses(case, url):
    with pytest.raises(ValueError, match=r"the remote is .*: give /folder, ssh://"):
        share.use_remote(case.clone, url)
