"""From embeddings to neighbours and scores: R-Precision, MAP@R, Recall@1, whitening, expansion."""

from polygrain.retrieval.metrics import QueryMetrics, query_metrics, retrieval_metrics

__all__ = ["QueryMetrics", "query_metrics", "retrieval_metrics"]
