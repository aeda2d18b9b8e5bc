import math

import pytest
import torch
from torch import Tensor

from polygrain.losses.intra_batch import IntraBatch

VALUES = {"steps": 2, "heads": 2, "temperature": 0.2, "smoothing": 0.1, "dropout": 0.0}
EMBEDDINGS = 3 * torch.randn(7, 6, generator=torch.Generator().manual_seed(0))
LABELS = torch.tensor([0, 1, 0, 3, 1, 3, 2])
CLASSES = 4


def make(**changes: object) -> IntraBatch:
    torch.manual_seed(0)
    loss = IntraBatch(6, CLASSES, **(VALUES | changes))
    for parameter in loss.parameters():  # none at a start that would hide it, such as 0 or 1
        parameter.data += 0.3 * torch.randn(parameter.shape)
    return loss


def linear(weights: dict[str, Tensor], name: str, x: list[float]) -> list[float]:
    weight, bias = weights[f"{name}.weight"], weights.get(f"{name}.bias")
    rows = [dot(row, x) for row in weight.tolist()]
    return rows if bias is None else [row + float(b) for row, b in zip(rows, bias, strict=True)]


def dot(x: list[float], y: list[float]) -> float:
    return sum(a * b for a, b in zip(x, y, strict=True))


def add(x: list[list[float]], y: list[list[float]]) -> list[list[float]]:
    return [[a + b for a, b in zip(*rows, strict=True)] for rows in zip(x, y, strict=True)]


def layer_norm(weights: dict[str, Tensor], name: str, x: list[float]) -> list[float]:
    mean = sum(x) / len(x)
    deviation = math.sqrt(sum((v - mean) ** 2 for v in x) / len(x) + 1e-5)
    pairs = zip(x, weights[f"{name}.weight"], weights[f"{name}.bias"], strict=True)
    return [(v - mean) / deviation * float(w) + float(b) for v, w, b in pairs]


def attend(weights: dict[str, Tensor], name: str, nodes: list[list[float]], heads: int) -> list[list[float]]:
    """Every image hears all of the batch, head by head, image by image."""
    width, packed = len(nodes[0]) // heads, weights[f"{name}.in_proj_weight"].chunk(3)
    biases = weights[f"{name}.in_proj_bias"].chunk(3)
    parts = [{"a.weight": w, "a.bias": b} for w, b in zip(packed, biases, strict=True)]
    q, k, v = ([linear(own, "a", x) for x in nodes] for own in parts)
    heard = []
    for i in range(len(nodes)):
        message: list[float] = []
        for head in range(heads):
            part = slice(head * width, (head + 1) * width)
            scores = [dot(q[i][part], key[part]) / math.sqrt(width) for key in k]
            shares = [math.exp(score) / sum(map(math.exp, scores)) for score in scores]
            message += [dot(shares, [value[part][d] for value in v]) for d in range(width)]
        heard.append(linear(weights, f"{name}.out_proj", message))
    return heard


def cross_entropy(logits: list[list[float]], temperature: float, smoothing: float) -> float:
    total = 0.0
    for row, label in zip(logits, LABELS.tolist(), strict=True):
        scaled = [value / temperature for value in row]
        normaliser = math.log(sum(map(math.exp, scaled)))
        for c, value in enumerate(scaled):
            target = (1 - smoothing) * (c == label) + smoothing / CLASSES
            total -= target * (value - normaliser)
    return total / len(logits)


def plain_loss(loss: IntraBatch) -> float:
    """The published steps, one number at a time."""
    weights, rows = loss.state_dict(), EMBEDDINGS.tolist()
    first = cross_entropy([linear(weights, "classifier", x) for x in rows], 0.2, 0.1)
    nodes = [linear(weights, "enter", [v / math.hypot(*x) for v in x]) for x in rows]
    refined: list[list[float]] = [[] for _ in rows]
    for s in range(len(loss.steps)):
        heard = attend(weights, f"steps.{s}.self_attn", nodes, 2)
        nodes = [layer_norm(weights, f"steps.{s}.norm1", x) for x in add(nodes, heard)]
        hidden = [[max(0.0, v) for v in linear(weights, f"steps.{s}.linear1", x)] for x in nodes]
        wide = [linear(weights, f"steps.{s}.linear2", x) for x in hidden]
        nodes = [layer_norm(weights, f"steps.{s}.norm2", x) for x in add(nodes, wide)]
        refined = [before + x for before, x in zip(refined, nodes, strict=True)]
    columns = list(zip(*refined, strict=True))
    means = [sum(column) / len(column) for column in columns]
    spreads = [math.sqrt(sum((v - m) ** 2 for v in c) / len(c) + 1e-5) for c, m in zip(columns, means, strict=True)]
    scale, shift = weights["norm.weight"].tolist(), weights["norm.bias"].tolist()
    normed = [
        [(v - m) / d * w + b for v, m, d, w, b in zip(x, means, spreads, scale, shift, strict=True)] for x in refined
    ]
    return first + cross_entropy([linear(weights, "refined_classifier", x) for x in normed], 0.2, 0.1)


@pytest.mark.parametrize("steps", [1, 2])
def test_intra_batch__equals_the_published_steps_one_number_at_a_time(steps: int) -> None:
    loss = make(steps=steps)
    assert loss(EMBEDDINGS, LABELS).item() == pytest.approx(plain_loss(loss), rel=1e-5)


def test_intra_batch__an_image_hears_the_others_but_in_no_order() -> None:
    loss = make().eval()
    refined = loss.refine(EMBEDDINGS)
    order = torch.tensor([3, 0, 6, 5, 1, 2, 4])
    assert refined.shape == (7, 12)
    assert torch.allclose(loss.refine(EMBEDDINGS[order]), refined[order], atol=1e-5)
    assert not torch.allclose(loss.refine(EMBEDDINGS[:4]), refined[:4], atol=1e-2)


def test_intra_batch__all_learns_but_the_shift_before_the_classifier() -> None:
    loss, embeddings = make(), EMBEDDINGS.clone().requires_grad_()
    loss(embeddings, LABELS).backward()
    assert [name for name, parameter in loss.named_parameters() if parameter.grad is None] == ["norm.bias"]
    assert (embeddings.grad.abs().sum(1) > 0).all()


def test_intra_batch__starts_as_the_public_code() -> None:
    torch.manual_seed(0)
    loss = IntraBatch(64, CLASSES, **VALUES)
    attention = loss.steps[0].self_attn
    widest = math.sqrt(6 / 128)  # Xavier's bound for layers of 64 by 64; of the three as one it would be sqrt(6 / 256)
    for weight in (*attention.in_proj_weight.chunk(3), attention.out_proj.weight):
        assert 0.97 * widest < weight.abs().max() <= widest
    assert loss.refined_classifier.weight.std().item() == pytest.approx(0.001, rel=0.1)
    assert not loss.norm.bias.any() and not loss.norm.bias.requires_grad


def test_intra_batch__heads_divide_the_embedding() -> None:
    with pytest.raises(ValueError, match="heads"):
        make(heads=4)
