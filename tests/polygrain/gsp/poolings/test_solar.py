import torch

from polygrain.gsp.poolings.solar import SOLAR

MAPS = torch.randn(2, 4, 3, 3, generator=torch.Generator().manual_seed(0))


def test_solar__equals_a_loop_over_places():
    torch.manual_seed(0)
    pool = SOLAR(4, reduction=2, p=3.0).eval()
    result = pool(MAPS).vector
    for image in range(2):
        query, key, value = (
            part(MAPS[image : image + 1])[0].flatten(1).T for part in (pool.query, pool.key, pool.value)
        )
        powers = torch.zeros(4)
        for j in range(9):
            attention = torch.stack([query[j] @ key[i] / 2**0.5 for i in range(9)]).softmax(0)
            seen = sum(attention[i] * value[i] for i in range(9))
            feature = MAPS[image].flatten(1)[:, j] + pool.out.weight[:, :, 0, 0] @ seen + pool.out.bias
            powers += feature.clamp_min(1e-6) ** 3
        assert torch.allclose(result[image], (powers / 9) ** (1 / 3), rtol=1e-4)
