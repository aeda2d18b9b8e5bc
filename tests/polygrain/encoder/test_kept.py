import pytest

from polygrain.encoder.kept import digest_of, earlier, keeping


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
