import torch

from polygrain.gsp.poolings.generalized_sum import GeneralizedSumPooling


def test_generalized_sum_pooling__is_the_average_for_mu_1():
    maps = torch.randn(3, 8, 7, 7, generator=torch.Generator().manual_seed(0))
    pooled, attributes = GeneralizedSumPooling(8, prototypes=4, mu=1.0, epsilon=5.0)(maps)
    assert torch.equal(pooled, maps.mean((2, 3)))
    assert torch.allclose(attributes.sum(1), torch.ones(3))


def test_generalized_sum_pooling__learns_what_to_look_at():
    """Objects of two kinds on clutter: the places of the objects end up with most of the weight."""
    torch.manual_seed(0)
    signs, clutter = torch.eye(8)[:2], torch.eye(8)[2:]
    layer, out = GeneralizedSumPooling(8, prototypes=2, mu=0.2, epsilon=10.0), torch.nn.Linear(8, 2)
    optimiser = torch.optim.Adam([*layer.parameters(), *out.parameters()], lr=0.03)
    for _ in range(150):
        labels = torch.randint(2, (32,))
        is_object = torch.rand(32, 49).argsort(1) < 10
        tokens = torch.where(is_object[..., None], signs[labels][:, None], clutter[torch.randint(6, (32, 49))])
        maps = (tokens + 0.1 * torch.randn(32, 49, 8)).transpose(1, 2).reshape(32, 8, 7, 7)
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(out(layer(maps)[0]), labels).backward()
        optimiser.step()
    weight_on_objects = (layer.weigh(maps).flatten(1) * is_object).sum(1).mean()
    assert weight_on_objects > 0.9, weight_on_objects  # 10 of 49 places; uniform weights give 0.2
