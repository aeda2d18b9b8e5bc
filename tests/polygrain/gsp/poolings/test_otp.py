import torch

from polygrain.gsp.poolings.otp import OTP, balanced_plan

MAPS = torch.randn(2, 5, 3, 4, generator=torch.Generator().manual_seed(0))


def test_balanced_plan__equals_plain_sinkhorn():
    cost = torch.rand(2, 3, 7, dtype=torch.float64)
    result = balanced_plan(cost, 2.0, 10)
    for image in range(2):
        kernel, u = (-2 * cost[image]).exp(), torch.ones(3, dtype=torch.float64)
        for _ in range(10):
            v = 1 / 7 / (kernel.T @ u)
            u = 1 / 3 / (kernel @ v)
        v = 1 / 7 / (kernel.T @ u)
        assert torch.allclose(result[image], u[:, None] * kernel * v[None], atol=1e-14)


def test_balanced_plan__has_equal_marginals():
    plan = balanced_plan(torch.rand(2, 3, 7, dtype=torch.float64), 2.0, 100)
    assert torch.allclose(plan.sum(1), torch.full((2, 7), 1 / 7, dtype=torch.float64))
    assert torch.allclose(plan.sum(2), torch.full((2, 3), 1 / 3, dtype=torch.float64))


def test_otp__equals_a_loop_over_prototypes():
    torch.manual_seed(0)
    pool = OTP(5, width=2, prototypes=3, epsilon=2.0, iterations=10)
    result = pool(MAPS).vector
    assert result.shape == (2, 6) and pool.size == 6
    features = torch.einsum("wc,bcyx->bwyx", pool.project.weight[:, :, 0, 0], MAPS).flatten(2)
    ball = [t / t.norm(dim=d, keepdim=True).clamp_min(1) for t, d in ((features, 1), (pool.prototypes, 1))]
    cost = (ball[1][None, :, None] - ball[0].mT[:, None]).norm(dim=3)
    plan = balanced_plan(cost, 2.0, 10)
    for image in range(2):
        for prototype in range(3):
            expected = sum(plan[image, prototype, j] * features[image, :, j] for j in range(12)) * 3**0.5
            assert torch.allclose(result[image, 2 * prototype : 2 * prototype + 2], expected, atol=1e-5)
