import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from torch.nn.functional import normalize

from polygrain.tll.adaptation.tables import Tables
from polygrain.tll.adaptation.training import Training
from tests.helpers.pairs import plain_recall

TESTED = np.array([7, 3, 9])


def test_write__tables_hold_what_was_added(tmp_path):
    left, right = normalize(torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0)), dim=-1)
    tables = Tables(2)
    tables.add_run("pca", 0, TESTED, left, right)
    tables.add_run("pca", 1, TESTED[::-1].copy(), left, left)
    tables.add_history("sigma_1", Training(torch.zeros(2, 5, 4), 4, 2, 2))
    tables.write(tmp_path)
    recall = pq.read_table(tmp_path / "recall.parquet").to_pylist()
    first = [row["recall"] for row in recall if row["row"] == "pca" and row["run"] == 0]
    assert first == pytest.approx(plain_recall(left @ right.T, [1, 2]))
    assert [row["recall"] for row in recall if row["row"] == "pca" and row["run"] == 1] == [1.0, 1.0]
    assert tables.recall_at_1() == {"pca": pytest.approx((first[0] + 1) / 2)}
    ranks = pq.read_table(tmp_path / "ranks.parquet").to_pylist()
    assert [row["pair"] for row in ranks] == [7, 3, 9, 9, 3, 7] and all(row["rank"] == 1 for row in ranks[3:])
    nearest = {row["pair"]: row["nearest"] for row in pq.read_table(tmp_path / "nearest.parquet").to_pylist()}
    order = (left @ right.T).argsort(1, descending=True)
    assert nearest == {pair: TESTED[order[i]].tolist() for i, pair in enumerate(TESTED.tolist())}
