"""Nearest neighbours and what they are worth: ranking, R-Precision, MAP@R, Recall@1, whitening.

What takes embeddings and gives neighbours or scores belongs here.
"""

from polygrain.retrieval.metrics import QueryMetrics, query_metrics, retrieval_metrics

__all__ = ["QueryMetrics", "query_metrics", "retrieval_metrics"]
