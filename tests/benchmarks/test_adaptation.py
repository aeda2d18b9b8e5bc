from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.adaptation import Bench


def sum_of_nearest(x, v, others):
    """An image and its three nearest of some others, weighted by the third power of their cosines."""
    near = sorted(others, key=lambda j: -(x[j] @ v))[:3]
    total = v + sum(max(x[j] @ v, 0) ** 3 * x[j] for j in near)
    return total / np.linalg.norm(total)


@pytest.mark.parametrize("count", [3, 4, 40])
@pytest.mark.parametrize("gallery", [False, True])
def test_expanded__a_query_is_not_in_its_own_gallery(count, gallery):
    rng = np.random.default_rng(count)
    x, labels = rng.normal(size=(count, 5)).astype(np.float32), rng.integers(0, 1 + count // 8, count)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    expected = []
    for i in range(count):
        others = [j for j in range(count) if j != i]
        query = sum_of_nearest(x, x[i], others)
        stored = {j: sum_of_nearest(x, x[j], [k for k in others if k != j]) if gallery else x[j] for j in others}
        order = sorted(others, key=lambda j: -(stored[j] @ query))
        right = [labels[j] == labels[i] for j in order]
        if sum(right):
            expected.append(100 * np.mean(right[: sum(right)]))
    bench = Bench.__new__(Bench)
    bench.collection, bench.test = SimpleNamespace(tasks=np.array(["t"] * count), labels=labels), np.arange(count)
    np.testing.assert_allclose(bench.expanded(x, gallery)["t"], expected)
