import inspect
import itertools
import math

import pytest
import torch
from torch.nn.functional import normalize

from polygrain.losses.metric import KNOWN, build, check
from polygrain.losses.metric import VALUES as KINDS

VALUES = {
    "c1": {"margin": 0.5},
    "c2": {"positive_margin": 0.2, "negative_margin": 0.9, "normalise": True},
    "triplet": {"margin": 0.1},
    "multi_similarity": {"alpha": 2.0, "beta": 40.0, "base": 0.5},
    "proxy_nca_pp": {"temperature": 0.11},
    "proxy_anchor": {"margin": 0.1, "alpha": 32.0},
    "xbm": {"margin": 0.5, "memory": 12, "start": 2},
    "libc": {"steps": 1, "heads": 2, "temperature": 0.2, "smoothing": 0.0, "dropout": 0.0},
}
LABELS = torch.tensor([0, 1, 0, 2, 1, 2, 3, 0])
EMBEDDINGS = torch.randn(8, 6, generator=torch.Generator().manual_seed(0))
CLASSES = 5


def made(name, **changes):
    torch.manual_seed(0)
    return build(name, 6, CLASSES, **(VALUES[name] | changes))


def pairs(embeddings):
    for i, j in itertools.permutations(range(8), 2):
        yield embeddings[i], embeddings[j], bool(LABELS[i] == LABELS[j])


def mean(values):
    return sum(values) / max(1, len(values))


def c1_twin(embeddings, labels, others, other_labels):
    total = 0.0
    for e, label in zip(embeddings, labels, strict=True):
        for other, other_label in zip(others, other_labels, strict=True):
            s = torch.cosine_similarity(e, other, dim=0).item()
            if s < 1 - 1e-5:  # not an image with itself
                total += 1 - s if label == other_label else max(0, s - 0.5)
    return total / len(embeddings)


def test_c1__equals_a_loop_over_pairs():
    expected = c1_twin(EMBEDDINGS, LABELS, EMBEDDINGS, LABELS)
    assert made("c1")(EMBEDDINGS, LABELS).item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("normalised", [True, False])
def test_c2__equals_a_loop_over_pairs(normalised):
    embeddings = normalize(EMBEDDINGS) if normalised else EMBEDDINGS
    terms = {True: [], False: []}
    for a, b, same in pairs(embeddings):
        d = (a - b).norm().item()
        terms[same].append(max(0, d - 0.2) if same else max(0, 2.5 - d))
    expected = sum(mean([term for term in kind if term > 0]) for kind in terms.values())
    result = made("c2", normalise=normalised, negative_margin=2.5)(EMBEDDINGS, LABELS)
    assert result.item() == pytest.approx(expected, rel=1e-5)


def test_triplet__equals_a_loop_over_triplets():
    e, terms = normalize(EMBEDDINGS), []
    for a, p, n in itertools.permutations(range(8), 3):
        if LABELS[a] == LABELS[p] and LABELS[a] != LABELS[n]:
            terms.append(max(0, ((e[a] - e[p]).norm() - (e[a] - e[n]).norm()).item() + 0.1))
    assert made("triplet")(EMBEDDINGS, LABELS).item() == pytest.approx(mean([t for t in terms if t > 0]), rel=1e-5)


def test_multi_similarity__equals_a_loop_over_images():
    e, rows = normalize(EMBEDDINGS), []
    for a in range(8):
        positive = negative = 0.0
        for b in range(8):
            s = (e[a] @ e[b]).item()
            if a != b and LABELS[a] == LABELS[b]:
                positive += math.exp(-2 * (s - 0.5))
            elif a != b:
                negative += math.exp(40 * (s - 0.5))
        rows.append(math.log1p(positive) / 2 + math.log1p(negative) / 40)
    assert made("multi_similarity")(EMBEDDINGS, LABELS).item() == pytest.approx(mean(rows), rel=1e-5)


def test_proxy_nca_pp__is_a_softmax_over_all_proxies():
    loss = made("proxy_nca_pp")
    (proxies,) = loss.parameters()
    logits = normalize(EMBEDDINGS) @ normalize(proxies, dim=0) / 0.11
    assert torch.isclose(loss(EMBEDDINGS, LABELS), torch.nn.functional.cross_entropy(logits, LABELS), rtol=1e-5)


def test_proxy_anchor__equals_a_loop_over_proxies():
    loss = made("proxy_anchor")
    (proxies,) = loss.parameters()
    positive, negative = [], []
    for c in range(CLASSES):
        s = normalize(EMBEDDINGS) @ normalize(proxies[c], dim=0)
        if (c == LABELS).any():
            positive.append(torch.log1p((-32 * (s[c == LABELS] - 0.1)).exp().sum()).item())
        negative.append(torch.log1p((32 * (s[c != LABELS] + 0.1)).exp().sum()).item())
    assert loss(EMBEDDINGS, LABELS).item() == pytest.approx(mean(positive) + mean(negative), rel=1e-4)


def test_xbm__adds_the_memory_from_its_start_on():
    loss, memory, labels = made("xbm"), torch.zeros(0, 6), torch.zeros(0, dtype=torch.long)
    for step, batch in enumerate(torch.randn(4, 8, 6, generator=torch.Generator().manual_seed(1))):
        memory, labels = torch.cat([memory, batch])[-12:], torch.cat([labels, LABELS])[-12:]
        expected = c1_twin(batch, LABELS, batch, LABELS)
        expected += c1_twin(batch, LABELS, memory, labels) if step >= 2 else 0
        assert loss(batch, LABELS).item() == pytest.approx(expected, rel=1e-4), step


def test_check__knows_bounds_of_every_value_that_a_loss_takes():
    taken = {name for loss in KNOWN.values() for name in inspect.signature(loss).parameters}
    assert taken - {"embedding_size", "classes"} == set(KINDS)
    check("proxy_nca_pp", {"temperature": 0.11})
