"""How a model's own collections are compared: `comparisons.json` in its folder, for each task and for all others."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter

from polygrain.comparing.comparison import FEWEST, Comparison, Front, Rows, choose
from polygrain.comparing.smoothing_choice import SETTINGS, SmoothingSettings
from polygrain.store.reading import reading

FILE = "comparisons.json"
REMEDY = "run the stage that wrote the model, or copy its whole folder"


@dataclass(frozen=True)
class Known:
    """The comparison of each task, and the one for images of no task, whose mean is that of all."""

    tasks: Mapping[str, Comparison] = field(default_factory=dict)
    default: Comparison = field(default_factory=Comparison)

    def write(self, folder: Path) -> None:
        named = {name: json.loads(one.to_json()) for name, one in self.tasks.items()}
        text = json.dumps({"tasks": named, "default": json.loads(self.default.to_json())})
        (folder / FILE).write_text(text + "\n", encoding="utf-8")

    def of(self, task: str | None) -> Comparison:
        """The comparison of a task; ValueError for one that the model does not know, None for images of no task."""
        if task is not None and task not in self.tasks:
            raise ValueError(f"the model knows no task {task!r}; it knows {', '.join(self.tasks) or 'none'}")
        return self.default if task is None else self.tasks[task]

    def choose(
        self,
        name: str,
        vectors: Rows,
        alike: int | None = None,
        front: Front | None = None,
        settings: SmoothingSettings = SETTINGS,
    ) -> tuple[Comparison, str]:
        """How the images of a folder of this name are compared, and why: as the task of that name; others by their own
        mean, or where they are few by the model's.
        """
        if name in self.tasks and alike in (None, self.tasks[name].alike):
            return self.tasks[name], f"as the model's task {name}"
        few = self.default.mean if len(vectors) < FEWEST else None
        mean = self.tasks[name].mean if name in self.tasks else few
        comparison, chosen = choose(vectors, alike, settings, mean, front)
        return comparison, chosen.why


ADAPTER = TypeAdapter(Known)


def read(folder: Path) -> Known:
    """What a model's folder says; of one that says nothing, no mean is taken.

    ValueError for a damaged file.
    """
    file = folder / FILE
    if not file.exists():
        return Known()
    with reading(file, REMEDY):
        return ADAPTER.validate_json(file.read_bytes())
