"""Crops of scikit-learn's photographs."""

from polygrain.sources.installed import Drawn, patches

KIND = Drawn(lambda params: patches(params.side, params.per_class.patches, params.places))
