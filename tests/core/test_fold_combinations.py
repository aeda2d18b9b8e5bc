import numpy as np
import pytest

from stages.core.fold_combinations import combinations, combine, spread


def test_combinations__of_the_papers_protocol_are_81():
    made = combinations(4, 3)
    assert len(made) == len(set(made)) == 81
    assert all(len(choice) == 4 and set(choice) <= {0, 1, 2} for choice in made)


def test_combine__means_and_rows_of_unit_length():
    rng = np.random.default_rng(0)
    parts = [rng.normal(size=(5, 4)).astype(np.float32) for _ in range(3)]
    parts = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in parts]
    joined = combine(parts)
    mean = (parts[0] + parts[1] + parts[2]) / 3
    assert np.allclose(joined["mean"], mean / np.linalg.norm(mean, axis=1, keepdims=True), atol=1e-6)
    assert joined["concat"].shape == (5, 12)
    assert np.allclose(joined["concat"] @ joined["concat"].T, sum(x @ x.T for x in parts) / 3, atol=1e-6)


def test_spread__is_of_the_sample():
    assert spread([1.0, 3.0]) == {"mean": 2.0, "std": pytest.approx(2**0.5), "min": 1.0, "max": 3.0}
    assert spread([4.0])["std"] == 0
