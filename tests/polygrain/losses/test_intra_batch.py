import math

import pytest
import torch

from polygrain.losses.intra_batch import IntraBatch

VALUES = {"steps": 2, "heads": 2, "temperature": 0.2, "smoothing": 0.1, "dropout": 0.0}
EMBEDDINGS = 3 * torch.randn(7, 6, generator=torch.Generator().manual_seed(0))
LABELS = torch.tensor([0, 1, 0, 3, 1, 3, 2])
CLASSES = 4


def make(**changes):
    torch.manual_seed(0)
    loss = IntraBatch(6, CLASSES, **(VALUES | changes))
    for parameter in loss.parameters():  # none at a start that would hide it, such as 0 or 1
        parameter.data += 0.3 * torch.randn(parameter.shape)
    return loss


def plain_loss(loss):
    """The published steps, with attention head by head and norms by their formulas."""
    w, heads = loss.state_dict(), VALUES["heads"]

    def linear(name, x):
        return x @ w[f"{name}.weight"].T + w.get(f"{name}.bias", 0)

    def norm(name, x, dim):
        centred = x - x.mean(dim, keepdim=True)
        deviation = (centred.square().mean(dim, keepdim=True) + 1e-5).sqrt()
        return centred / deviation * w[f"{name}.weight"] + w[f"{name}.bias"]

    def cross_entropy(logits):
        targets = 0.9 * torch.eye(CLASSES)[LABELS] + 0.1 / CLASSES
        return -(targets * (logits / VALUES["temperature"]).log_softmax(1)).sum(1).mean()

    nodes, outputs = linear("enter", EMBEDDINGS / EMBEDDINGS.norm(dim=1, keepdim=True)), []
    for s in range(len(loss.steps)):
        attention, messages = f"steps.{s}.self_attn", []
        packed = nodes @ w[f"{attention}.in_proj_weight"].T + w[f"{attention}.in_proj_bias"]
        for q, k, v in zip(*(part.chunk(heads, 1) for part in packed.chunk(3, 1)), strict=True):
            messages.append((q @ k.T / q.shape[1] ** 0.5).softmax(1) @ v)
        nodes = norm(f"steps.{s}.norm1", nodes + linear(f"{attention}.out_proj", torch.cat(messages, 1)), 1)
        wide = linear(f"steps.{s}.linear2", linear(f"steps.{s}.linear1", nodes).relu())
        nodes = norm(f"steps.{s}.norm2", nodes + wide, 1)
        outputs.append(nodes)
    refined = linear("refined_classifier", norm("norm", torch.cat(outputs, 1), 0))
    return cross_entropy(linear("classifier", EMBEDDINGS)) + cross_entropy(refined)


@pytest.mark.parametrize("steps", [1, 2])
def test_intra_batch__equals_the_published_steps(steps):
    loss = make(steps=steps)
    assert loss(EMBEDDINGS, LABELS).item() == pytest.approx(plain_loss(loss).item(), rel=1e-5)


def test_intra_batch__starts_as_the_public_code():
    torch.manual_seed(0)
    loss = IntraBatch(64, CLASSES, **VALUES)
    attention = loss.steps[0].self_attn
    widest = math.sqrt(6 / 128)  # Xavier's bound for layers of 64 by 64; of the three as one it would be sqrt(6 / 256)
    for weight in (*attention.in_proj_weight.chunk(3), attention.out_proj.weight):
        assert 0.97 * widest < weight.abs().max() <= widest
    assert loss.refined_classifier.weight.std().item() == pytest.approx(0.001, rel=0.1)
    assert not loss.norm.bias.any() and not loss.norm.bias.requires_grad
