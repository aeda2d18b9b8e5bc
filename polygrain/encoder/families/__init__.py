"""The families of timm's networks. A network belongs to the first that claims it."""

from torch import nn

from polygrain.encoder.families.class_token import ClassToken
from polygrain.encoder.families.family import Family

FAMILIES: tuple[type[Family], ...] = (ClassToken, Family)


def family_of(network: nn.Module) -> Family:
    """The structure of a network, in the form of its family."""
    return next(family(network) for family in FAMILIES if family.claims(network))
