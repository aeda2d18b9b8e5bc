import pytest

from polygrain.config.survey import survey
from tests.helpers import streams


def test_survey__counts_by_names_and_labels(tmp_path):
    for number in range(2):
        streams.tar(tmp_path / f"{number}.tar", *streams.samples(4 * number, 4 * number + 4), ("n.txt", b""))
    assert survey("tars", str(tmp_path)) == {
        "classes": {"0": 3, "1": 3, "2": 2}, "about": False, "others": 2, "listing": None
    }  # fmt: skip
    assert survey("tars", str(tmp_path), "0.*")["classes"] == {"0": 2, "1": 1, "2": 1}
    streams.parquet(tmp_path / "a.parquet", [b"", b"", b""], [1, 0, 5], ["cat", "dog"])
    assert survey("parquet", str(tmp_path))["classes"] == {"cat": 1, "dog": 1}
    streams.parquet(tmp_path / "a.parquet", [b"", b""])
    assert survey("parquet", str(tmp_path / "a.parquet"))["classes"] == {"": 2}


def test_survey__raise_on_a_tar_that_was_cut_off(tmp_path):
    file = streams.tar(tmp_path / "a.tar", *streams.samples(0, 4))
    file.write_bytes(file.read_bytes()[:1024])
    with pytest.raises(ValueError, match=r"a\.tar is no whole tar"):
        survey("tars", str(tmp_path))


@pytest.mark.slow
def test_survey__remote_tars_by_the_first_of_them(tmp_path, monkeypatch):
    with streams.served(monkeypatch) as store:
        for number in range(3):
            file = streams.tar(tmp_path / "a.tar", *streams.samples(10 * number, 10 * number + 10))
            store.put(str(file), f"pictures/x/{number}.tar")
        found = survey("remote", "s3://pictures/x")
        assert found["about"] and found["classes"] == {"0": 12, "1": 9, "2": 9} and '"files": 3' in found["listing"]
        store.pipe({"pictures/y/a/1.png": b"1", "pictures/y/b/2.png": b"2", "pictures/y/c.txt": b""})
        found = survey("remote", "s3://pictures/y")
        assert not found["about"] and found["classes"] == {"a": 1, "b": 1} and found["others"] == 1
