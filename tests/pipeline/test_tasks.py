"""What becomes of a stage whose upstream did not end well; the rest needs a server (test_flows.py)."""

from pipeline.execution import Outcome
from pipeline.graph import Stage
from pipeline.tasks import Run


def stage(name: str, *upstream: str) -> Stage:
    return Stage(name, upstream, True, {}, "", ())


def test_reproduce__a_stage_that_reads_from_what_failed_is_not_run_and_says_why(tmp_path):
    results = {"a": "ran", "b": "failed", "c": "cached"}
    run = Run(tmp_path, outcomes={name: Outcome(result, 1.0, ()) for name, result in results.items()})
    state = run.reproduce(stage("d", "a", "b", "c", "raw.dvc"))
    assert (state.name, state.message) == ("NotReady", "not run, since it reads from b (failed)")
    assert run.outcomes["d"].result == "not run"
    assert run.reproduce(stage("e", "d")).message == "not run, since it reads from d (not run)"
    assert run.lacking(stage("f", "a", "c", "raw.dvc")) == []
