import math

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from polygrain.losses.effective_rank import effective_rank


def test_effective_rank__is_the_entropy_of_the_covariances_eigenvalues():
    x = torch.randn(40, 6, generator=torch.Generator().manual_seed(0)) * torch.tensor([9.0, 3, 1, 1, 0.5, 0.1]) + 1
    variances = np.linalg.eigvalsh(np.cov(normalize(x.double(), dim=1).numpy().T))
    shares = variances / variances.sum()
    assert effective_rank(x).item() == pytest.approx(math.exp(-sum(p * math.log(p) for p in shares if p > 0)), rel=1e-5)


def test_effective_rank__one_point_has_none():
    assert effective_rank(torch.full((5, 4), 0.3)).item() == 0
