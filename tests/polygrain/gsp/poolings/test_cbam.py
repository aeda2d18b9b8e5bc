import torch

from polygrain.gsp.poolings.cbam import CBAM

MAPS = torch.randn(2, 8, 4, 5, generator=torch.Generator().manual_seed(0))


def test_cbam__equals_a_loop():
    torch.manual_seed(0)
    pool = CBAM(8, reduction=4, kernel=3)
    first, second = pool.channel[0].weight, pool.channel[2].weight
    for image in range(2):
        gate = torch.sigmoid(
            sum(second @ (first @ summary).relu() for summary in (MAPS[image].mean((1, 2)), MAPS[image].amax((1, 2))))
        )
        gated = MAPS[image] * gate[:, None, None]
        total = torch.zeros(8)
        for y in range(4):
            for x in range(5):
                score = 0.0
                for dy in (-1, 0, 1):
                    for dx in (-1, 0, 1):
                        if 0 <= y + dy < 4 and 0 <= x + dx < 5:
                            seen, kernel = gated[:, y + dy, x + dx], pool.spatial.weight[0, :, dy + 1, dx + 1]
                            score = score + kernel[0] * seen.max() + kernel[1] * seen.mean()
                total = total + torch.sigmoid(score) * gated[:, y, x]
        assert torch.allclose(pool(MAPS).vector[image], total / 20, atol=1e-6)
