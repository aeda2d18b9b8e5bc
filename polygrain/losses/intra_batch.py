"""LIBC: the embeddings of a batch refine each other, and classifiers learn from the plain and the refined ones.

"Learning Intra-Batch Connections for Deep Metric Learning", Seidenschwarz, Elezi and Leal-Taixe, ICML 2021; details as
in the public code, `dvl-tum/intra_batch` at `b5d0b5b`. The refinement is used in training only.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

START_STD = 0.001  # of the refined features' classifier


class IntraBatch(nn.Module):
    """Cross entropy of the embeddings plus that of the embeddings after `steps` message passings over the batch.

    A step is an encoder layer of a transformer, with the batch as its sequence. The second classifier sees the outputs
    of all steps side by side. Logits are divided by `temperature`, and `smoothing` of each target is spread over all
    classes. ValueError where `heads` does not divide the embedding.
    """

    def __init__(
        self,
        embedding_size: int,
        classes: int,
        steps: int,
        heads: int,
        temperature: float,
        smoothing: float,
        dropout: float,
    ) -> None:
        super().__init__()
        if embedding_size % heads:
            raise ValueError(f"heads is {heads}, which does not divide the embedding's {embedding_size} dimensions")
        self.temperature, self.smoothing = temperature, smoothing
        self.classifier = nn.Linear(embedding_size, classes)
        self.enter = nn.Linear(embedding_size, embedding_size)
        layers = [
            nn.TransformerEncoderLayer(embedding_size, heads, 4 * embedding_size, dropout, batch_first=True)
            for _ in range(steps)
        ]
        self.steps = nn.ModuleList(layers)
        for layer in layers:
            # The public code has three layers for query, key and value, which torch draws as one.
            for weight in (*layer.self_attn.in_proj_weight.chunk(3), layer.self_attn.out_proj.weight):
                nn.init.xavier_uniform_(weight)
        self.norm = nn.BatchNorm1d(steps * embedding_size)
        self.norm.bias.requires_grad_(False)
        self.refined_classifier = nn.Linear(steps * embedding_size, classes, bias=False)
        nn.init.normal_(self.refined_classifier.weight, std=START_STD)

    def refine(self, embeddings: Float[Tensor, "batch dim"]) -> Float[Tensor, "batch refined"]:
        """The outputs of all steps on the normalised embeddings, side by side."""
        nodes, outputs = self.enter(functional.normalize(embeddings, dim=1))[None], []
        for step in self.steps:
            nodes = step(nodes)
            outputs.append(nodes[0])
        return torch.cat(outputs, 1)

    def forward(self, embeddings: Float[Tensor, "batch dim"], labels: Int[Tensor, " batch"]) -> Float[Tensor, ""]:
        embeddings = embeddings.float()
        refined = self.refined_classifier(self.norm(self.refine(embeddings)))
        first, second = (
            functional.cross_entropy(logits / self.temperature, labels, label_smoothing=self.smoothing)
            for logits in (self.classifier(embeddings), refined)
        )
        return first + second
