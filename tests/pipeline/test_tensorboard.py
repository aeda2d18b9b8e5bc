"""Curves as TensorBoard reads them: read back record by record."""

import struct
import sys
import time

import pytest
from tensorboardX.proto.event_pb2 import Event, SessionLog

from pipeline import tensorboard
from pipeline.progress import Point


def events(folder):
    """Every event of a folder's files: each is its length, a checksum, itself, a checksum."""
    found = []
    for file in sorted(folder.iterdir()):
        content = file.read_bytes()
        # The last one may be half written.
        while len(content) >= 12 and len(content) >= 16 + struct.unpack("<Q", content[:8])[0]:
            (length,) = struct.unpack("<Q", content[:8])
            found.append(Event.FromString(content[12 : 12 + length]))
            content = content[16 + length :]
    return found


def scalars(folder):
    return [(value.tag, event.step, value.simple_value) for event in events(folder) for value in event.summary.value]


def test_writer__values_by_name_and_step_while_it_runs(tmp_path):
    writer = tensorboard.Writer(tmp_path, "adaptor@k8")
    writer.add({})
    assert not list(tmp_path.iterdir())
    writer.add({"loss": Point(0.5, 20, 0.25), "sop-0 map_at_r": Point(0.5, 20, 0.5)})
    wanted = [("loss", 20, 0.25), ("sop-0/map_at_r", 20, 0.5)]
    deadline = time.monotonic() + 30
    while scalars(tmp_path / "adaptor@k8") != wanted:
        assert time.monotonic() < deadline, "nothing is on the disk"
        time.sleep(0.05)
    writer.add({"loss": Point(1, 40, 0.125)})
    writer.close()
    assert scalars(tmp_path / "adaptor@k8") == [*wanted, ("loss", 40, 0.125)]


def test_writer__what_an_earlier_run_wrote_from_there_on_gives_way(tmp_path):
    writer = tensorboard.Writer(tmp_path, "adaptor@k8")
    writer.add({"loss": Point(1.5, 30, 0.25)})
    writer.close()
    starts = [event.step for event in events(tmp_path / "adaptor@k8") if event.session_log.status == SessionLog.START]
    assert starts == [30]


def test_ready__bad_input_is_named(tmp_path, monkeypatch):
    assert tensorboard.ready(tmp_path / "new" / "folder").is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"--tensorboard .*file cannot be made a folder: File exists"):
        tensorboard.ready(tmp_path / "file")
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(ValueError, match="--tensorboard needs tensorboardX: pip install tensorboardX"):
        tensorboard.ready(tmp_path)
