import torch
from torch.nn.functional import cross_entropy, normalize

from polygrain.losses.info_nce import batch_contrast, queue_contrast


def unit(*shape):
    return normalize(torch.randn(*shape), dim=-1)


def test_queue_contrast__is_moco_for_each_head():
    """As MoCo writes it: logits of [positive, queue] over the temperature, class 0 is right."""
    queries, keys, queue = unit(3, 6, 8).requires_grad_(), unit(3, 6, 8), unit(3, 20, 8)
    losses, accuracies = queue_contrast(queries, keys, queue, 0.2)
    for m in range(3):
        logits = torch.cat([(queries[m] * keys[m]).sum(1, keepdim=True), queries[m] @ queue[m].T], 1) / 0.2
        torch.testing.assert_close(losses[m], cross_entropy(logits, torch.zeros(6, dtype=torch.long)))
        assert accuracies[m] == (logits.argmax(1) == 0).float().mean()
    gradient = torch.autograd.grad(losses[0], queries)[0]
    assert gradient[0].abs().sum() > 0 and gradient[1:].abs().sum() == 0


def test_batch_contrast__is_moco_v3_for_each_head():
    queries, keys = unit(2, 4, 8), unit(2, 12, 8)
    losses, accuracies = batch_contrast(queries, keys, 0.3, offset=4)
    for m in range(2):
        logits = queries[m] @ keys[m].T / 0.3
        labels = torch.arange(4) + 4
        torch.testing.assert_close(losses[m], cross_entropy(logits, labels) * 2 * 0.3)
        assert accuracies[m] == (logits.argmax(1) == labels).float().mean()
