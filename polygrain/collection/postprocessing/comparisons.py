"""The comparisons of a model's own tasks: `comparisons.json` in its folder."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter

from polygrain.collection.postprocessing.comparison import Comparison
from polygrain.store.reading import reading

FILE = "comparisons.json"
REMEDY = "run the stage that wrote the model, or copy its whole folder"


@dataclass(frozen=True)
class Comparisons:
    """The comparison of each task, and one for images of no task, with the mean of all tasks."""

    tasks: Mapping[str, Comparison] = field(default_factory=dict)
    default: Comparison = field(default_factory=Comparison)

    def write(self, folder: Path) -> None:
        named = {name: json.loads(one.to_json()) for name, one in self.tasks.items()}
        text = json.dumps({"tasks": named, "default": json.loads(self.default.to_json())})
        (folder / FILE).write_text(text + "\n", encoding="utf-8")

    @classmethod
    def read(cls, folder: Path | None) -> "Comparisons":
        """The comparisons in a model's folder; without the file there is no mean. ValueError for a damaged file."""
        file = None if folder is None else folder / FILE
        if file is None or not file.exists():
            return cls()
        with reading(file, REMEDY):
            return ADAPTER.validate_json(file.read_bytes())

    def of(self, task: str | None) -> Comparison:
        """The comparison of a task; ValueError for one that the model does not know, None for images of no task."""
        if task is not None and task not in self.tasks:
            raise ValueError(f"the model knows no task {task!r}; it knows {', '.join(self.tasks) or 'none'}")
        return self.default if task is None else self.tasks[task]


ADAPTER = TypeAdapter(Comparisons)
