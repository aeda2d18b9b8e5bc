"""What every section of params.yaml obeys."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, StringConstraints


class Section(BaseModel):
    """A section of params.yaml: unknown keys are refused, types are not bent, and nothing has a default."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]*$")]
