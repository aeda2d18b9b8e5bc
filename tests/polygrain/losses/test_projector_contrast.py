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


def test_head_cosines__are_those_of_each_pair():
    z = torch.randn(3, 5, 7)
    expected = [[torch.cosine_similarity(z[i], z[j], dim=1).mean() for j in range(3)] for i in range(3)]
    torch.testing.assert_close(head_cosines(z), torch.tensor(expected))
