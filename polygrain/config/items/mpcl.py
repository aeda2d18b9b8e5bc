"""The items of MPCL's lists."""

from typing import Literal

from pydantic import Field

from polygrain.config.schema import Name, Section, Text, Weight


class Pretraining(Section):
    """One MPCL run: the values in which the runs of `mpcl` differ."""

    framework: Literal["moco_v2", "moco_v3", "barlow_twins"] = Field(
        description="the method; its values are in mpcl_encoder"
    )
    heads: int = Field(ge=1, le=64, description="projectors over the encoder")
    projectors: Literal["shared", "same", "different"] = Field(description="one hidden layer for all heads, or its own")
    variant: Literal["plain", "dropout", "mixed", "orthogonal"] = Field(description="Table II's alternatives")
    contrast: Weight = Field(description="lambda of the projector contrastive regularisation")
    balance: Literal["none", "literal", "neutral"] = Field(
        description="projector training balance: none, as printed, or scaled to mean 1"
    )


class Detection(Section):
    """A detector over the encoder of one pretraining run (MPCL, Table VI)."""

    run: Name = Field(description="a run of `mpcl` whose encoder is a ResNet")
    path: Text = Field(description="a folder of images with boxes: annotations/ beside train2017/ and val2017/")
