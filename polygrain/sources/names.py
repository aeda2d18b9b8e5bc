"""The sources of images by the names that params.yaml gives them: what `images` can read."""

from polygrain.sources.datasets.addresses import SOURCES

# Drawn from installed packages, a function of `installed.py` each.
INSTALLED = ("digits", "glyphs", "patches")
# Read one behind the other: tars as WebDataset lays them, Parquet files, and an object store by its listing.
STREAMS = ("tars", "parquet", "remote")
PUBLIC = tuple(SOURCES)
KNOWN = (*INSTALLED, "folder", "splits", *STREAMS, *PUBLIC)
