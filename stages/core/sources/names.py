"""The sources of images by the names that params.yaml gives them: what `images` can read."""

from stages.core.sources.datasets.addresses import SOURCES

# Drawn from installed packages, a function of `installed.py` each.
INSTALLED = ("digits", "glyphs", "patches")
PUBLIC = tuple(SOURCES)
KNOWN = (*INSTALLED, "folder", "splits", *PUBLIC)
