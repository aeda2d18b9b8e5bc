import os

import pytest
import torch

from stages.core.encoder.backbone import read_checkpoint


class Bomb:
    def __reduce__(self):
        return (print, ("executed",))


def test_read_checkpoint__runs_no_code_from_a_pickle(tmp_path, capsys):
    torch.save({"state_dict": Bomb()}, tmp_path / "evil.pth")
    with pytest.raises(ValueError, match=r"evil.pth cannot be read as weights"):
        read_checkpoint(tmp_path / "evil.pth")
    assert "executed" not in capsys.readouterr().out


def test_read_checkpoint__names_a_file_that_is_damaged_or_no_table(tmp_path):
    (tmp_path / "x.safetensors").write_bytes(b"nonsense")
    with pytest.raises(ValueError, match=r"x.safetensors is missing or damaged"):
        read_checkpoint(tmp_path / "x.safetensors")
    torch.save([torch.zeros(2)], tmp_path / "list.pth")
    with pytest.raises(ValueError, match="holds no table of tensors"):
        read_checkpoint(tmp_path / "list.pth")


def test_read_checkpoint__does_not_wait_for_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "weights.pth")
    with pytest.raises(ValueError, match=r"weights.pth is missing or damaged \(it is a pipe"):
        read_checkpoint(tmp_path / "weights.pth")
