import pytest
import torch

from stages.core import similarities as module
from stages.core.similarities import similarities


@pytest.mark.parametrize("block", [1, 7, 50, 51, 512])
@pytest.mark.parametrize("n", [1, 2, 51])
def test_similarities__equals_the_product_for_any_block(n, block, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", block)
    x = torch.randn(n, 6, generator=torch.Generator().manual_seed(n))
    torch.testing.assert_close(similarities(x), (x.double() @ x.double().T).float())
