"""The graph, one stage after another, by `dvc repro`; nothing of it outlives this process, nor its starter."""

import os
from contextlib import closing

from pipeline import guard, project, ready
from pipeline.forks import DVC
from pipeline.warm import Warm


def main(profile: str | None = None, stages: list[str] | None = None) -> int:
    """Runs what is stale of the graph, or of these stages and what they read; dvc's exit code, 143 if it was stopped.

    ValueError, before anything runs, names an unknown profile and each wrong value of params.yaml.
    """
    guard.end_with_starter()
    folder = ready.make_ready(profile)
    # With the file before it, no stage is taken for an option or an output.
    targets = [f"dvc.yaml:{stage}" for stage in stages or ()] or ["dvc.yaml"]
    with closing(Warm(project())) as warm:
        os.environ.update(warm.environment)
        return guard.main(lambda: guard.popen([*DVC, "repro", *targets], folder), guard.RECORD_SECONDS)
