import math

import torch

from polygrain.gsp.poolings.delf import DeLF

MAPS = torch.randn(2, 5, 3, 4, generator=torch.Generator().manual_seed(0))


def test_delf__equals_a_loop_over_places():
    torch.manual_seed(0)
    pool = DeLF(5, hidden=6)
    result = pool(MAPS)
    first, second = pool.score[0], pool.score[2]
    for image in range(2):
        scores = []
        for place in MAPS[image].flatten(1).T:
            hidden = (first.weight[:, :, 0, 0] @ place + first.bias).relu()
            scores.append(math.log1p(math.exp((second.weight[0, :, 0, 0] @ hidden + second.bias).item())))
        total = sum(score * place for score, place in zip(scores, MAPS[image].flatten(1).T, strict=True))
        assert torch.allclose(result.vector[image], total / 12, atol=1e-5)
        assert torch.allclose(result.weights[image].flatten(), torch.tensor(scores) / sum(scores), atol=1e-6)
