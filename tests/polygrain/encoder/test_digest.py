from shutil import copytree

import pytest

from polygrain.encoder.digest import digest
from tests.helpers.small import write_encoder


def test_digest__of_weights_and_config_and_of_nothing_else(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    write_encoder(first)
    copytree(first, second)
    (second / "README.md").write_text("another card")
    assert digest(first) == digest(second)
    for name in ("config.json", "weights.safetensors"):
        content = (first / name).read_bytes()
        (second / name).write_bytes(content[:-1] + b" ")
        assert digest(first) != digest(second)
        (second / name).write_bytes(content)


def test_digest__names_the_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"config\.json"):
        digest(tmp_path)
