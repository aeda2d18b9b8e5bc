"""One loss a file, a pure function of tensors (`metric.py` holds the family of metric-learning losses by name).

A stage names the files it uses in its `deps`, so a new loss makes no other stage stale.
"""

from polygrain.losses.projector_contrast import projector_contrast
from polygrain.losses.zero_shot import zero_shot_loss

__all__ = ["projector_contrast", "zero_shot_loss"]
