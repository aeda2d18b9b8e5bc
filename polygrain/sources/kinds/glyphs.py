"""Letters and digits in matplotlib's fonts."""

from polygrain.sources.installed import Drawn, glyphs

KIND = Drawn(lambda params: glyphs(params.side, params.per_class.glyphs))
