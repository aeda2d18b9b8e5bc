"""One loss per file, each a pure function of tensors; `metric.py` has the metric-learning losses by name."""
