"""What may be handed to a network's constructor, by timm or torchvision: sizes and switches, within bounds.

A constructor takes far more. Some of it opens files (`checkpoint_path`), asks the network (`pretrained_cfg`) or returns
something else than a network (`features_only`, `scriptable`), so what is not named here is refused.
"""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from polygrain.config.schema import Factor, Side, check_values

Share = Annotated[float, Field(ge=0, lt=1)]
# The widest and deepest networks that timm has are 8,192 wide (with 128 heads) and 100 blocks deep.
KINDS = {
    "img_size": Side,
    "patch_size": Annotated[int, Field(ge=1, le=256)],
    "window_size": Annotated[int, Field(ge=1, le=256)],
    "embed_dim": Annotated[int, Field(ge=1, le=16_384)],
    "depth": Annotated[int, Field(ge=1, le=256)],
    "num_heads": Annotated[int, Field(ge=1, le=256)],
    "mlp_ratio": Annotated[float, Field(gt=0, le=64)],
    "reg_tokens": Annotated[int, Field(ge=0, le=256)],
    "base_width": Annotated[int, Field(ge=1, le=1024)],
    "cardinality": Annotated[int, Field(ge=1, le=1024)],
    "stem_width": Annotated[int, Field(ge=1, le=1024)],
    "output_stride": Literal[8, 16, 32],
    "pad_type": Literal["", "same"],
    "global_pool": Literal["", "avg", "max", "avgmax", "catavgmax", "token", "map"],
    "init_values": Factor,
    **dict.fromkeys(
        ["drop_rate", "pos_drop_rate", "patch_drop_rate", "proj_drop_rate", "attn_drop_rate", "drop_path_rate"], Share
    ),
    **dict.fromkeys(
        ["class_token", "no_embed_class", "pre_norm", "final_norm", "fc_norm", "qkv_bias", "qk_norm"], bool
    ),
    **dict.fromkeys(["dynamic_img_size", "dynamic_img_pad", "strict_img_size"], bool),
}


Values = dict[str, int | float | bool | str]


def safe(arguments: Values) -> Values:
    """The arguments as they are; ValueError for one that is not known here, or out of its bounds."""
    check_values(arguments, KINDS)
    return arguments


Arguments = Annotated[Values, AfterValidator(safe)]
