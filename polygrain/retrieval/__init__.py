"""From embeddings to neighbours and scores: R-Precision, MAP@R, Recall@1, whitening, smoothing, expansion."""

from typing import Any

from polygrain.retrieval.metrics import QueryMetrics, query_metrics, retrieval_metrics

__all__ = ["QueryMetrics", "query_metrics", "retrieval_metrics", "smooth"]


def __getattr__(name: str) -> Any:
    # It needs faiss, which scores and exports do without.
    if name == "smooth":
        from polygrain.retrieval.smoothing_choice import smooth

        return smooth
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
