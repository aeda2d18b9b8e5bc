from polygrain.new.folders import Folder, examine
from tests.helpers import streams


def test_find__tars_and_parquet_files(tmp_path):
    for number in range(2):
        streams.tar(tmp_path / f"shards/train-{number}.tar", *streams.samples(4 * number, 4 * number + 4))
    streams.tar(tmp_path / "shards/val.tar", *streams.samples(0, 3))
    streams.parquet(tmp_path / "bags/0.parquet", [streams.png(i) for i in range(8)])
    shards, bags = tmp_path / "shards", tmp_path / "bags"
    assert examine(f"{shards}/train-*.tar") == Folder("tars", shards, {"0": 3, "1": 3, "2": 2}, files="train-*.tar")
    assert examine(f"{shards}/val.tar") == Folder("tars", shards / "val.tar", {"0": 1, "1": 1, "2": 1})
    assert examine(str(bags)) == Folder("parquet", bags, {"": 8})
