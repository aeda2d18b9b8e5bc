"""The sources of images, by their names in params.yaml."""

from polygrain.sources.datasets.addresses import SOURCES

# Drawn from installed packages, each by a function of `installed.py`.
INSTALLED = ("digits", "glyphs", "patches")
# Read as a stream: tars in WebDataset's layout, Parquet files, and an object store by its listing.
STREAMS = ("tars", "parquet", "remote")
PUBLIC = tuple(SOURCES)
KNOWN = (*INSTALLED, "folder", "splits", *STREAMS, *PUBLIC)
