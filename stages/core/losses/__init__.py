"""One loss a file, a pure function of tensors (`metric.py` holds the family of metric-learning losses by name).

A stage names the files it uses in its `deps`, so a new loss makes no other stage stale.
"""
