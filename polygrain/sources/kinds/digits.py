"""Scikit-learn's handwritten digits."""

from polygrain.sources.installed import Drawn, digits

KIND = Drawn(lambda params: digits(params.side, params.per_class.digits))
