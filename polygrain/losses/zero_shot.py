"""The zero-shot loss: attributes must predict the embeddings of classes that the predictor has not seen (GSP, 4.3)."""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def halves(labels: Int[Tensor, " batch"]) -> Int[Tensor, " batch"]:
    """0 or 1 for every image, the same for all images of a class: the rank of the class in the batch, modulo 2."""
    classes, rank = torch.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"the batch has {len(classes)} class; the zero-shot loss needs two: raise batch_classes")
    return rank % 2


def predict(
    attributes: Float[Tensor, "fitted prototype"],
    targets: Float[Tensor, "fitted dim"],
    others: Float[Tensor, "other prototype"],
    ridge: float,
) -> Float[Tensor, "other dim"]:
    """The targets of the others by ridge regression on attributes (P3), in its dual form.

    With attributes Z and targets Y as rows, the regression is A = Y' (Z Z' + ridge I)^-1 Z.
    """
    gram = attributes @ attributes.T + ridge * torch.eye(len(attributes)).to(attributes)
    coefficients = torch.cholesky_solve(targets, torch.linalg.cholesky(gram))
    return others @ attributes.T @ coefficients


def zero_shot_loss(
    attributes: Float[Tensor, "batch prototype"],
    labels: Int[Tensor, " batch"],
    class_embeddings: Float[Tensor, "class dim"],
    ridge: float,
    scale: float,
) -> Float[Tensor, ""]:
    """The mean cross entropy of scale <prediction, class embedding> over ALL training classes.

    Each half of the batch's classes is predicted from the other half. Printed Eq. 4.4 counts the true class twice; this
    is the softmax of the paper's Alg. 4. ValueError for a batch of one class.
    """
    half = halves(labels)
    dtype = torch.promote_types(attributes.dtype, torch.float32)
    attributes, embeddings = attributes.to(dtype), class_embeddings.to(dtype)
    losses = []
    for fitted, other in ((half == 0, half == 1), (half == 1, half == 0)):
        with torch.autocast(attributes.device.type, enabled=False):
            predictions = predict(attributes[fitted], embeddings[labels[fitted]], attributes[other], ridge)
            logits = scale * predictions @ embeddings.T
        losses.append(torch.nn.functional.cross_entropy(logits, labels[other], reduction="sum"))
    return torch.stack(losses).sum() / len(labels)
