import pytest
import torch

from polygrain.losses.projector_contrast import head_cosines, projector_contrast


def plain(z):
    """Eq. 2, one pair at a time."""
    heads, batch, _ = z.shape
    total = 0.0
    for i in range(batch):
        for m in range(heads):
            others = [torch.cosine_similarity(z[m, i], z[other, i], dim=0) for other in range(heads) if other != m]
            total += sum(others) / (heads - 1) / (heads * batch)
    return total


@pytest.mark.parametrize("heads", [2, 3, 4])
def test_projector_contrast__is_the_mean_cosine_to_the_other_heads(heads):
    z = torch.randn(heads, 5, 7, requires_grad=True)
    torch.testing.assert_close(projector_contrast(z), plain(z))
    ours, theirs = (torch.autograd.grad(f(z), z)[0] for f in (projector_contrast, plain))
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("heads", [2, 4, 8])
def test_projector_contrast__alone_drives_heads_to_sum_to_zero(heads):
    torch.manual_seed(0)
    z = torch.nn.Parameter(torch.randn(heads, 16, 12))
    optimizer = torch.optim.Adam([z], 0.05)
    for _ in range(300):
        optimizer.zero_grad()
        projector_contrast(z).backward()
        optimizer.step()
    assert projector_contrast(z).item() == pytest.approx(-1 / (heads - 1), abs=1e-3)


def test_projector_contrast__bounds():
    same = torch.randn(1, 5, 7).expand(4, 5, 7)
    assert projector_contrast(same).item() == pytest.approx(1)
    assert projector_contrast(torch.randn(1, 5, 7)).item() == 0  # a single head has nobody to differ from


def test_head_cosines__are_those_of_each_pair():
    z = torch.randn(3, 5, 7)
    expected = [[torch.cosine_similarity(z[i], z[j], dim=1).mean() for j in range(3)] for i in range(3)]
    torch.testing.assert_close(head_cosines(z), torch.tensor(expected))
