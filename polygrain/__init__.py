"""Use a model that polygrain made, from any folder: what is named here is public and stays.

model = load("profiles/shoes/data/choice")
embeddings = embed(model, ["a.jpg", "b.jpg"])
"""

import importlib

# Where each name lives. It is imported when it is first asked for: torch alone takes seconds.
HOMES = {
    "Clusters": "stages.core.clustering.lloyd",
    "GeneralizedSumPooling": "stages.core.gsp.poolings.generalized_sum",
    "Hit": "polygrain.gallery",
    "Model": "stages.core.encoder.model",
    "QueryMetrics": "stages.core.retrieval.metrics",
    "embed": "polygrain.embedding",
    "kmeans": "stages.core.clustering.lloyd",
    "load": "stages.core.encoder.model",
    "projector_contrast": "stages.core.losses.projector_contrast",
    "query_metrics": "stages.core.retrieval.metrics",
    "retrieval_metrics": "stages.core.retrieval.metrics",
    "search": "polygrain.gallery",
    "zero_shot_loss": "stages.core.losses.zero_shot",
}
__all__ = sorted(HOMES)


def __getattr__(name: str) -> object:
    if name not in HOMES:
        raise AttributeError(f"polygrain has no {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
