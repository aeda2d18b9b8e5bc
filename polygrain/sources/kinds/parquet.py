"""Parquet files as Hugging Face writes them, one or a folder of them."""

from polygrain.sources.streams.shards import Shards

KIND = Shards("parquet")
