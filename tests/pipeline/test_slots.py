"""Slots are held by living processes only, all of a stage's or none."""

import os
import subprocess
import sys
import threading
import time

import pytest

from pipeline import slots


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("POLYGRAIN_SLOTS", str(tmp_path / "slots"))


def test_held__as_many_as_asked_and_no_device_twice():
    with (
        slots.held(2, ["0", "1", "2"], threading.Event()) as two,
        slots.held(1, ["0", "1", "2"], threading.Event()) as one,
    ):
        assert sorted(two.devices + one.devices) == ["0", "1", "2"]
        assert slots.attempt(1, ["0", "1", "2"]) is None


def test_attempt__all_or_none():
    with slots.held(1, ["0", "1"], threading.Event()) as held:
        assert slots.attempt(2, ["0", "1"]) is None
        left = slots.attempt(1, ["0", "1"])  # the failed attempt let its half go
        assert left.devices != held.devices
        os.close(left.descriptors[0])


def test_held__waits_for_a_free_one_and_stops_waiting_when_told():
    stopping, order = threading.Event(), []

    def wait():
        with slots.held(1, ["0"], stopping) as held:
            order.append(held and held.devices)

    with slots.held(1, ["0"], stopping):
        waiting = threading.Thread(target=wait)
        waiting.start()
        time.sleep(0.3)
        assert order == []
    waiting.join(5)
    assert order == [["0"]]
    with slots.held(1, ["0"], stopping):
        waiting = threading.Thread(target=wait)
        waiting.start()
        stopping.set()
        waiting.join(5)
    assert order == [["0"], None]


def test_held__a_child_keeps_it_and_its_death_frees_it():
    with slots.held(1, ["0"], threading.Event()) as held:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], pass_fds=held.descriptors)
    assert slots.attempt(1, ["0"]) is None
    child.kill()
    child.wait()
    free = slots.attempt(1, ["0"])
    assert free is not None
    os.close(free.descriptors[0])


def test_held__more_than_there_are_is_an_error():
    with pytest.raises(ValueError, match=r"asks for 3 GPUs.*shows 2"), slots.held(3, ["0", "1"], threading.Event()):
        pass


@pytest.mark.parametrize(("count", "devices"), [(0, ["0"]), (1, [])])
def test_held__nothing_to_hold(count, devices):
    with slots.held(count, devices, threading.Event()) as held:
        assert held == slots.Slots([], [])


@pytest.mark.parametrize(("named", "devices"), [("", []), ("-1", []), ("2,5", ["2", "5"]), ("GPU-ab", ["GPU-ab"])])
def test_visible__as_cuda_names_them(named, devices, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    assert slots.visible() == devices


def test_visible__asks_the_driver(tmp_path, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert slots.visible() == []
    fake = tmp_path / "nvidia-smi"
    fake.write_text("#!/bin/sh\necho 'GPU 0: A (UUID: GPU-1)'\necho 'GPU 1: A (UUID: GPU-2)'\n")
    fake.chmod(0o755)
    assert slots.visible() == ["0", "1"]


def test_held__a_folder_that_someone_else_planted_is_refused(tmp_path, monkeypatch):
    """Who owns the folder could hold every slot, or have the lock files made elsewhere."""
    (tmp_path / "slots").symlink_to(tmp_path)
    with pytest.raises(ValueError, match="slots is a link"), slots.held(1, ["0"], threading.Event()):
        pass
    (tmp_path / "slots").unlink()
    (tmp_path / "slots").mkdir(0o700)
    owner = os.getuid()
    monkeypatch.setattr("pipeline.private.os.getuid", lambda: owner + 1)
    with pytest.raises(ValueError, match=f"slots belongs to user {owner}"), slots.held(1, ["0"], threading.Event()):
        pass
    monkeypatch.undo()
    assert list((tmp_path / "slots").iterdir()) == [] and not (tmp_path / "0").exists()


def test_attempt__follows_no_link(tmp_path):
    (tmp_path / "slots").mkdir(0o700)
    (tmp_path / "slots" / "0").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic link"):
        slots.attempt(1, ["0"])
    assert not (tmp_path / "elsewhere").exists()
