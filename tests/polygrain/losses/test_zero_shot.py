import pytest
import torch

from polygrain.losses.zero_shot import predict, zero_shot_loss

LABELS = torch.tensor([3, 0, 2, 3, 0, 5, 2, 5, 3])
ATTRIBUTES = torch.rand(9, 4, generator=torch.Generator().manual_seed(0))
CLASSES = torch.randn(7, 6, generator=torch.Generator().manual_seed(1))


def test_predict__equals_the_primal_ridge_solution():
    targets, others = torch.randn(9, 6), torch.rand(5, 4)
    z = ATTRIBUTES.T  # columns are images, as in the paper: A = Y Z' (Z Z' + ridge I)^-1
    a = targets.T @ z.T @ torch.linalg.inv(z @ z.T + 0.05 * torch.eye(4))
    assert torch.allclose(predict(ATTRIBUTES, targets, others, 0.05), (a @ others.T).T, atol=1e-4)


def slow(attributes, labels, classes, ridge, scale):
    """Image by image, with the inverse of Alg. 4."""
    ranks = {label: rank % 2 for rank, label in enumerate(sorted(set(labels.tolist())))}
    total = 0.0
    for image, label in enumerate(labels.tolist()):
        known = [i for i, other in enumerate(labels.tolist()) if ranks[other] != ranks[label]]
        z, y = attributes[known].T, classes[labels[known]].T
        a = y @ torch.linalg.inv(z.T @ z + ridge * torch.eye(len(known))) @ z.T
        logits = scale * classes @ (a @ attributes[image])
        total += torch.log(sum((logits - logits[label]).exp())).item()
    return total / len(labels)


def test_zero_shot_loss__equals_a_loop_over_images():
    loss = zero_shot_loss(ATTRIBUTES, LABELS, CLASSES, ridge=0.05, scale=2.0)
    assert loss.item() == pytest.approx(slow(ATTRIBUTES, LABELS, CLASSES, 0.05, 2.0), rel=1e-4)
