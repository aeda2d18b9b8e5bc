from shutil import copytree

import pytest

from polygrain.encoder.kept import digest, digest_of, earlier, keeping
from tests.helpers.small import write_encoder


def write(folder, weights):
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("config.json", "weights.safetensors", "comparisons.json"):
        (folder / name).write_text(weights)
    return digest_of(folder)


def test_keeping__a_model_that_is_replaced_stays_until_it_is_back(tmp_path):
    choice = tmp_path / "data/choice"
    first = write(choice, "a"), write(choice / "without_training", "b")
    with pytest.raises(OSError, match="killed"), keeping(tmp_path, ["choice"]):
        write(choice, "c")
        raise OSError("killed")
    assert list(earlier(choice)) == [first[0]] and digest_of(earlier(choice)[first[0]]) == first[0]
    with keeping(tmp_path, ["choice"]):
        write(choice / "without_training", "d")
    assert {*earlier(choice)} == {*first} == {*earlier(choice / "without_training")}
    assert (earlier(choice)[first[1]] / "comparisons.json").read_text() == "b"
    with keeping(tmp_path, ["choice"]):
        second = digest_of(choice)
        write(choice, "a")
    assert {*earlier(choice)} == {first[1], second}
    with keeping(tmp_path, ["report"]):
        write(choice, "e")
    assert {*earlier(choice)} == {first[1], second} and earlier(tmp_path / "elsewhere") == {}


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
