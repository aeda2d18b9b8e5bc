"""The items of Grappa's lists."""

from typing import Literal

from pydantic import Field

from polygrain.config.schema import Name, Section


class SupervisedModel(Section):
    """One model that learns from true labels."""

    on: Name = Field(description="a task, or `all` of them")
    how: Literal["full", "one", "many"] = Field(
        description="full: all weights train; one: an adaptor set; many: a set for each granularity, with their fusion"
    )
