"""One loss a file, a pure function of tensors (`metric.py` holds the family of metric-learning losses by name).

A stage names in its `deps` the files it uses, so a new loss makes nothing stale.
"""
