"""The items of TLL's list."""

from typing import Literal

from pydantic import Field

from polygrain.config.schema import Section, Text


class Study(Section):
    """One study of visual analogies (`tll`)."""

    source: Literal["analogies", "folder"] = Field(description="embedded pairs, or a folder of pairs")
    path: Text = Field(description="the folder of the pairs; for embedded pairs versions.yaml")
    listed: Text | None = Field(
        description="a CSV in the folder that lists the pairs; null pairs left/ and right/ by name"
    )
    extractor: Text = Field(description="a name of tll_features.extractors, or a published one")
    weights: Text = Field(
        description="a model folder, a file (.safetensors, .pth), or for published weights versions.yaml"
    )
