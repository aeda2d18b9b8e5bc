"""GPU slots are held by living processes only, all of a stage's or none."""

import subprocess
import sys
import threading
import time
from threading import Event

import pytest

from pipeline import gpus
from tests.helpers import toy


@pytest.fixture(autouse=True)
def devices(tmp_path, monkeypatch):
    monkeypatch.setenv("POLYGRAIN_SLOTS", str(tmp_path / "slots"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2")


def test_hold__as_many_as_asked_and_no_device_twice():
    with gpus.hold(2, Event()) as two, gpus.hold(1, Event()) as one, gpus.hold(0, Event()) as none:
        assert sorted(two + one) == ["0", "1", "2"] and none == []
    with gpus.hold(3, Event()) as three:
        assert len(three) == 3


def test_lent__one_for_each_process_of_the_stages_that_share(monkeypatch):
    monkeypatch.setenv("POLYGRAIN_PROCESSES", "2")
    for meta, expected in [({"gpu": "each"}, "0,1"), ({"gpu": 1}, "0"), ({}, "")]:
        with gpus.lent(meta, Event()) as shown:
            assert shown == {"CUDA_VISIBLE_DEVICES": expected}
    monkeypatch.setenv("POLYGRAIN_TORCHRUN", "--nnodes 2 --nproc-per-node 3")
    assert gpus.asked({"gpu": "each"}) == 3
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with gpus.lent({"gpu": "each"}, Event()) as shown:  # none is known here: the stage looks for itself
        assert shown == {}


def test_hold__a_card_is_one_by_number_and_by_uuid(tmp_path, monkeypatch):
    (tmp_path / "nvidia-smi").write_text(
        "#!/bin/sh\necho 'GPU 0: NVIDIA H100 (UUID: GPU-aa11-22)'\n"
        "echo '  MIG 1g.10gb Device 0: (UUID: MIG-dd44)'\necho 'GPU 1: Orin (nvgpu) (UUID: bb33-44)'\n"
    )
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    gpus.cards.cache_clear()
    try:
        with gpus.hold(1, Event()) as first:
            assert first == ["0"]
            for name, held in [("GPU-aa11-22,1", ["1"]), ("GPU-aa,bb33-44", ["bb33-44"]), ("MIG-dd44", ["MIG-dd44"])]:
                monkeypatch.setenv("CUDA_VISIBLE_DEVICES", name)
                with gpus.hold(1, Event()) as other:
                    assert other == held
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
        assert gpus.visible() == ["0", "1"]
    finally:
        gpus.cards.cache_clear()


def test_hold__waits_for_a_free_one_and_stops_waiting_when_told():
    stopping, results = Event(), []

    def wait():
        with gpus.hold(2, stopping) as held:
            results.append(held)

    with gpus.hold(2, Event()):
        waiting = threading.Thread(target=wait)
        waiting.start()
        time.sleep(0.3)
        assert results == []
        with gpus.hold(1, Event()) as third:  # whoever waits for two holds none
            assert third == ["2"]
    waiting.join(5)
    assert results == [["0", "1"]]
    with gpus.hold(3, Event()):
        waiting = threading.Thread(target=wait)
        waiting.start()
        stopping.set()
        waiting.join(5)
    assert results[1:] == [[]]


def test_hold__the_death_of_the_holder_frees_it():
    program = (
        "import time; from threading import Event; from pipeline import gpus\n"
        "with gpus.hold(3, Event()): print('held', flush=True); time.sleep(60)"
    )
    environment = toy.ENVIRONMENT | {
        name: gpus.os.environ[name] for name in ("POLYGRAIN_SLOTS", "CUDA_VISIBLE_DEVICES")
    }
    with subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        holder.kill()
    with gpus.hold(3, Event()) as held:
        assert len(held) == 3


def test_hold__more_than_there_are(monkeypatch):
    with pytest.raises(ValueError, match="asks for 4 GPUs"), gpus.hold(4, Event()):
        pass
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with gpus.hold(4, Event()) as none:  # a machine without any runs everything on the CPU
        assert none == []
