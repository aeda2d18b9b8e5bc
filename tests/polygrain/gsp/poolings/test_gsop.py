import torch

from polygrain.gsp.poolings.gsop import GSoP, SecondOrderGate, covariance

MAPS = torch.randn(2, 5, 3, 3, generator=torch.Generator().manual_seed(0))


def test_covariance__equals_numpy_like_loops():
    rows = torch.randn(1, 3, 7)
    result = covariance(rows)[0]
    for i in range(3):
        for j in range(3):
            a, b = rows[0, i], rows[0, j]
            assert torch.isclose(result[i, j], ((a - a.mean()) * (b - b.mean())).sum() / 7, atol=1e-6)


def test_second_order_gate__filters_each_row_alone():
    torch.manual_seed(0)
    gate = SecondOrderGate(3, 2).eval()
    matrix = torch.randn(1, 3, 3)
    normed = matrix[0] / (1 + gate.norm.eps) ** 0.5
    hidden = []
    for row in range(3):
        for k in range(4):
            hidden.append(gate.row.weight[4 * row + k, 0, 0] @ normed[row] + gate.row.bias[4 * row + k])
    expected = torch.sigmoid(gate.mix(torch.stack(hidden)))
    assert torch.allclose(gate(matrix)[0], expected, atol=1e-6)


def test_gsop__keeps_the_larger_of_both_gated_maps():
    torch.manual_seed(0)
    pool = GSoP(5, attention=4, grid=3).eval()
    for image in range(2):
        maps = MAPS[image : image + 1]
        channel = pool.channel_gate(covariance(pool.channels_in(maps).flatten(2)))[0]
        place = pool.place_gate(covariance(pool.places_in(maps).flatten(2).mT))[0]
        total = torch.zeros(5)
        for j, feature in enumerate(MAPS[image].flatten(1).T):
            total += torch.maximum(feature * channel, feature.relu() * place[j])
        assert torch.allclose(pool(maps).vector[0], total / 9, atol=1e-6)
