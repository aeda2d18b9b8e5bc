import numpy as np
import pytest
import torch

from polygrain.app.export.agreement import BATCHES, difference, require_agreement
from tests.helpers.small import CONFIG, Model


@pytest.mark.parametrize("uint8", [False, True])
def test_difference__is_the_largest_of_all_batches(uint8):
    torch.manual_seed(0)
    model = Model(CONFIG)
    given = []

    def run(batch: np.ndarray) -> np.ndarray:
        given.append(batch)
        result = model(torch.from_numpy(batch)).numpy().copy()
        result[0, 0] += 0.25 * (len(batch) == 2)
        return result

    assert difference(model, run, uint8) == pytest.approx(0.25)
    assert [len(batch) for batch in given] == [*BATCHES]
    assert {batch.dtype for batch in given} == {np.dtype(np.uint8 if uint8 else np.float32)}


def test_difference__of_rectangles_where_a_program_takes_them():
    model = Model(CONFIG.model_copy(update={"shape": "whole"}))
    seen = []

    def run(batch: np.ndarray) -> np.ndarray:
        seen.append(batch.shape[2:])
        return model(torch.from_numpy(batch)).numpy() + (batch.shape[2] > batch.shape[3])

    assert difference(model, run, True, free=True) == pytest.approx(1)
    assert {(32, 32), (32, 48), (64, 32), (32, 96)} == {*seen}


def test_difference__refuses_another_shape():
    with pytest.raises(ValueError, match=r"\(1, 2\)"):
        difference(Model(CONFIG), lambda batch: np.zeros((len(batch), 2)), False)


@pytest.mark.parametrize("largest", [1.1e-4, np.nan])
def test_require_agreement__refuses_what_differs_or_is_no_number(largest):
    require_agreement("model.onnx", 1e-4)
    with pytest.raises(ValueError, match="at most 1e-04"):
        require_agreement("model.onnx", largest)
