import json

import numpy as np
import pytest

from polygrain.store import arrays
from polygrain.store.joined import Joined


@pytest.mark.parametrize("blocks", [1, 2, 9])
def test_joined__blocks_of_unit_length_side_by_side_are_of_unit_length(tmp_path, blocks):
    rows, widths = np.random.default_rng(0).normal(size=(20, 7)).astype(np.float32), [4, 3]
    facts = {"digest": "x", "side": 1, "widths": widths, "blocks": 2, "embedding": 4}
    for task, own in (("a", rows[:12]), ("b", rows[12:])):
        (tmp_path / task).mkdir()
        arrays.write(tmp_path / task / "features.zarr", own)
        (tmp_path / task / "features.json").write_text(json.dumps(facts))
    chosen = np.array([15, 0, 7])
    found = Joined(tmp_path, ["a", "b"], blocks, chosen)
    parts = [rows[chosen, :4], rows[chosen, 4:]][:blocks]
    expected = np.concatenate([part / np.linalg.norm(part, axis=1, keepdims=True) for part in parts], 1)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found[:], expected / np.sqrt(len(parts)), atol=1e-6)
    np.testing.assert_allclose(found[np.array([2])], expected[2:] / np.sqrt(len(parts)), atol=1e-6)
