import itertools
import math

import pytest
import torch
from torch.nn.functional import normalize

from polygrain.losses.intra_batch import IntraBatch
from polygrain.losses.metric import KNOWN, build

LABELS = torch.tensor([0, 1, 0, 2, 1, 2, 3, 0])
EMBEDDINGS = torch.randn(8, 6, generator=torch.Generator().manual_seed(0))
CLASSES = 5


def made(name, **values):
    torch.manual_seed(0)
    return build(name, 6, CLASSES, **values)


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
    assert made("c1", margin=0.5)(EMBEDDINGS, LABELS).item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("normalised", [True, False])
def test_c2__equals_a_loop_over_pairs(normalised):
    embeddings = normalize(EMBEDDINGS) if normalised else EMBEDDINGS
    terms = {True: [], False: []}
    for a, b, same in pairs(embeddings):
        d = (a - b).norm().item()
        terms[same].append(max(0, d - 0.2) if same else max(0, 2.5 - d))
    expected = sum(mean([term for term in kind if term > 0]) for kind in terms.values())
    result = made("c2", positive_margin=0.2, negative_margin=2.5, normalise=normalised)(EMBEDDINGS, LABELS)
    assert result.item() == pytest.approx(expected, rel=1e-5)


def test_triplet__equals_a_loop_over_triplets():
    e, terms = normalize(EMBEDDINGS), []
    for a, p, n in itertools.permutations(range(8), 3):
        if LABELS[a] == LABELS[p] and LABELS[a] != LABELS[n]:
            terms.append(max(0, ((e[a] - e[p]).norm() - (e[a] - e[n]).norm()).item() + 0.1))
    expected = mean([t for t in terms if t > 0])
    assert made("triplet", margin=0.1)(EMBEDDINGS, LABELS).item() == pytest.approx(expected, rel=1e-5)


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
    result = made("multi_similarity", alpha=2.0, beta=40.0, base=0.5)(EMBEDDINGS, LABELS)
    assert result.item() == pytest.approx(mean(rows), rel=1e-5)


def test_proxy_nca_pp__is_a_softmax_over_all_proxies():
    loss = made("proxy_nca_pp", temperature=0.11)
    (proxies,) = loss.parameters()
    logits = normalize(EMBEDDINGS) @ normalize(proxies, dim=0) / 0.11
    assert torch.isclose(loss(EMBEDDINGS, LABELS), torch.nn.functional.cross_entropy(logits, LABELS), rtol=1e-5)


def test_proxy_anchor__equals_a_loop_over_proxies():
    loss = made("proxy_anchor", margin=0.1, alpha=32.0)
    (proxies,) = loss.parameters()
    positive, negative = [], []
    for c in range(CLASSES):
        s = normalize(EMBEDDINGS) @ normalize(proxies[c], dim=0)
        if (c == LABELS).any():
            positive.append(torch.log1p((-32 * (s[c == LABELS] - 0.1)).exp().sum()).item())
        negative.append(torch.log1p((32 * (s[c != LABELS] + 0.1)).exp().sum()).item())
    assert loss(EMBEDDINGS, LABELS).item() == pytest.approx(mean(positive) + mean(negative), rel=1e-4)


def test_xbm__adds_the_memory_from_its_start_on():
    loss = made("xbm", margin=0.5, memory=12, start=2)
    memory, labels = torch.zeros(0, 6), torch.zeros(0, dtype=torch.long)
    for step, batch in enumerate(torch.randn(4, 8, 6, generator=torch.Generator().manual_seed(1))):
        memory, labels = torch.cat([memory, batch])[-12:], torch.cat([labels, LABELS])[-12:]
        expected = c1_twin(batch, LABELS, batch, LABELS)
        expected += c1_twin(batch, LABELS, memory, labels) if step >= 2 else 0
        assert loss(batch, LABELS).item() == pytest.approx(expected, rel=1e-4), step


def test_libc__is_the_loss_between_the_images_of_a_batch():
    """Its twin is in test_intra_batch.py."""
    loss = made("libc", steps=2, heads=2, temperature=0.2, smoothing=0.1, dropout=0.0)
    assert isinstance(loss, IntraBatch) and len(loss.steps) == 2


def test_known__each_loss_has_a_test_by_its_name():
    assert not [name for name in KNOWN if not any(test.startswith(f"test_{name}__") for test in globals())]


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("c3", {}, "no loss 'c3'; known: c1, c2"),
        ("c1", {"margin": 0.1, "alpha": 1.0}, "loss 'c1' takes margin; given: margin, alpha"),
        ("c1", {"margin": -1.0}, "loss 'c1': margin is -1.0: Input should be greater than or equal to 0"),
    ],
)
def test_build__refuses(name, values, words):
    with pytest.raises(ValueError, match=words):
        made(name, **values)
