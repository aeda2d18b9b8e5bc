import pytest
import torch

from polygrain.mpcl.pretraining.projectors import MultiProjector, build_mlp

RESNET50 = 23_508_032  # parameters of timm's and torchvision's ResNet-50 without its classifier


@pytest.mark.parametrize(("heads", "published"), [(1, 27.97), (2, 28.23), (4, 28.75), (8, 29.80)])
def test_multi_projector__has_the_published_parameter_counts(heads, published):
    count = RESNET50 + sum(p.numel() for p in MultiProjector(2048, 2048, 128, heads).parameters())
    assert round(count / 1e6, 2) == published


def test_multi_projector__shared_is_one_hidden_layer_and_a_linear_layer_for_each_head():
    projector, x = MultiProjector(6, 5, 3, 4), torch.randn(7, 6)
    first, _, last = projector.networks[0]
    hidden = torch.relu(x @ first.weight.T + first.bias)
    blocks = list(zip(last.weight.split(3), last.bias.split(3), strict=True))
    torch.testing.assert_close(projector(x), torch.stack([hidden @ w.T + b for w, b in blocks]))


def test_multi_projector__own_heads_are_networks_of_their_own():
    projector, x = MultiProjector(6, [2, 9, 4], 3, 3, shared=False), torch.randn(7, 6)
    for head, network in zip(projector(x), projector.networks, strict=True):
        torch.testing.assert_close(head, network(x))
    assert [network[0].out_features for network in projector.networks] == [2, 9, 4]


def test_multi_projector__mixed_start_draws_kaiming_and_xavier_in_turn():
    torch.manual_seed(0)
    projector = MultiProjector(64, 600, 100, 2, start="mixed")
    even, odd = (matrices[0].std().item() for matrices in projector.own_matrices())
    assert even == pytest.approx((2 / 600) ** 0.5, rel=0.02)
    assert odd == pytest.approx((2 / 700) ** 0.5, rel=0.02)


def test_overlap__is_the_mean_squared_cosine_and_zero_for_orthogonal_heads():
    projector = MultiProjector(4, 8, 2, 3)
    blocks = projector.networks[0][-1].weight.detach().split(2)
    rows = [block / block.norm(dim=1, keepdim=True) for block in blocks]
    plain = [float(a @ b) ** 2 for i in range(3) for j in range(i + 1, 3) for a in rows[i] for b in rows[j]]
    assert projector.overlap().item() == pytest.approx(sum(plain) / len(plain), rel=1e-5)
    torch.nn.init.orthogonal_(projector.networks[0][-1].weight)
    assert projector.overlap().item() < 1e-12
    assert MultiProjector(4, 8, 2, 1).overlap().item() == 0
    assert MultiProjector(4, [8, 6], 2, 2, shared=False).overlap().item() > 0


def test_build_mlp__norms_and_dropout_where_the_base_codes_have_them():
    def kinds(norm, dropout=0.0):
        return [type(layer).__name__ for layer in build_mlp([4, 5, 6, 3], norm, dropout)]

    hidden = ["Linear", "BatchNorm1d", "ReLU"]
    assert kinds("none") == ["Linear", "ReLU", "Linear", "ReLU", "Linear"]
    assert kinds("inner") == [*hidden, *hidden, "Linear"]
    assert kinds("all") == [*hidden, *hidden, "Linear", "BatchNorm1d"]
    assert kinds("none", 0.5) == ["Linear", "ReLU", "Dropout", "Linear", "ReLU", "Dropout", "Linear"]
    assert not build_mlp([4, 5, 3], "all", 0.0)[-1].affine
