import torch

from polygrain.gsp.poolings.netvlad import NetVLAD

MAPS = torch.randn(2, 5, 3, 4, generator=torch.Generator().manual_seed(0))


def test_netvlad__equals_a_loop_over_residuals():
    torch.manual_seed(0)
    pool = NetVLAD(5, width=3, centres=4)
    result = pool(MAPS).vector
    assert result.shape == (2, 12) and pool.size == 12
    for image in range(2):
        sums = torch.zeros(4, 3)
        for place in MAPS[image].flatten(1).T:
            feature = pool.project.weight[:, :, 0, 0] @ place
            share = (pool.assign.weight[:, :, 0, 0] @ feature + pool.assign.bias).softmax(0)
            for centre in range(4):
                sums[centre] += share[centre] * (feature - pool.centres[centre])
        expected = torch.cat([row / row.norm() for row in sums])
        assert torch.allclose(result[image], expected, atol=1e-5)
