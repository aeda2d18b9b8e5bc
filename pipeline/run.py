"""The graph, one stage after another, or one stage of it, by `dvc repro`."""

import json
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from pipeline import dvc_api, graph, process_group, project, stage_server
from pipeline.prepare import composed
from polygrain.compute.counted import counted
from polygrain.encoder.kept import keeping
from polygrain.findings.headline import spoken


@dataclass(frozen=True)
class Outcome:
    """The result of a stage: `ran`, `cached`, `failed`, `stopped`, `not run`; seconds; the last lines it wrote."""

    result: str
    seconds: float = 0.0
    tail: tuple[str, ...] = ()

    @property
    def is_done(self) -> bool:
        return self.result in ("ran", "cached")


def main(profile: str | None = None, stages: list[str] | None = None, dry: bool = False) -> int:
    """Says what is stale of the graph, or of these stages and what they read, and runs it; 0, 1 where a stage failed.

    With `dry` nothing runs and nothing is written; 143: it was stopped. ValueError, before anything runs, names an
    unknown profile or stage and each wrong value of params.yaml.
    """
    folder, texts = composed(profile, write=not dry)
    loaded = graph.load(folder, stages or (), texts if dry else {})
    todo = graph.to_do(loaded)
    lines = [f"{len(todo)} of {counted(len(loaded), 'stage')} to do", *(f"  {line}" for line in graph.by_cause(todo))]
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()
    if dry:
        return 0
    read = {name for stage in loaded for name in stage.upstream}
    with keeping(folder, [stage.name for stage in todo]):
        code = repro(folder, stages or [stage.name for stage in loaded if stage.name not in read]) if todo else 0
    if code == 0 and any(stage.name == "report" for stage in loaded) and (line := result(folder)):
        sys.stdout.write(f"\n{line}\n")
    return code


def repro(folder: Path, stages: Sequence[str]) -> int:
    """Runs these stages and what they read; the exit code."""
    stopping = Event()
    process_group.stop_on_signals(stopping)
    # With the file before it, no stage is taken for an option or an output.
    targets = [f"dvc.yaml:{stage}" for stage in stages]
    with stage_server.serving(project(folder)) as environment:
        code = process_group.run([*dvc_api.DVC, "repro", *targets], folder, environment=environment, stopping=stopping)
    return code if stopping.is_set() else min(code, 1)  # DVC's own code for a failed stage is 255


def result(folder: Path) -> str | None:
    """The headline of the graph's report and its page; None without a report."""
    page, file = folder / "data/report/index.html", folder / "data/report/headline.json"
    if not page.exists() or not file.exists():
        return None
    sentence = spoken(json.loads(file.read_text(encoding="utf-8")))
    return f"{sentence or 'the report is drawn'}: open {os.path.relpath(page)}"


def run_stage(
    folder: Path,
    name: str,
    on_line: Callable[[str], None],
    stopping: Event,
    environment: Mapping[str, str] | None = None,
) -> Outcome:
    """Runs one stage, and nothing it reads from; `on_line` gets each line it writes."""
    tail: deque[str] = deque(maxlen=20)
    ran = True

    def listen(line: str) -> None:
        nonlocal ran
        ran = ran and not line.removeprefix("Stage ").startswith(f"'{name}' ")  # is cached, or didn't change
        tail.append(line)
        on_line(line)

    start = time.monotonic()
    code = process_group.run([*dvc_api.DVC, "repro", "--single-item", name], folder, listen, environment, stopping)
    result = "stopped" if stopping.is_set() else "failed" if code else "ran" if ran else "cached"
    return Outcome(result, time.monotonic() - start, tuple(tail))
