"""Tars in WebDataset's layout, one or a folder of them."""

from polygrain.sources.streams.shards import Shards

KIND = Shards("tars")
