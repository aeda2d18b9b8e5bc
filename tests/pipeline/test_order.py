"""Stages start after all they read from, and never too many at once."""

import time
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from pipeline import order
from pipeline.graph import Stage

GRAPH = {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"], "e": [], "f": ["e", "gone"]}


def stages(graph: dict[str, list[str]]) -> list[Stage]:
    return [Stage(name, tuple(upstream), True, {}, "", ()) for name, upstream in graph.items()]


@pytest.mark.parametrize("jobs", [1, 2, 8])
def test_submit_in_order__after_all_it_reads_from_and_never_more_than_jobs(jobs):
    events, most, running = [], 0, set()
    with ThreadPoolExecutor(8) as pool:

        def submit(stage: Stage, upstream: list[Future]) -> Future:
            nonlocal most
            assert all(future.done() for future in upstream)
            assert [future.result() for future in upstream] == [name for name in stage.upstream if name in GRAPH]
            running.add(stage.name)
            most = max(most, len(running))

            def work() -> str:
                time.sleep(0.02)
                running.discard(stage.name)
                events.append(stage.name)
                return stage.name

            return pool.submit(work)

        futures = order.submit_in_order(stages(GRAPH), jobs, submit, lambda: None)
    assert set(futures) == set(events) == set(GRAPH)
    assert most <= jobs and (jobs == 1 or most > 1)


def test_submit_in_order__a_look_that_raises_ends_it(monkeypatch):
    monkeypatch.setattr(order, "SECONDS_BETWEEN_LOOKS", 0.05)
    with pytest.raises(KeyError, match="now"):
        order.submit_in_order(stages(GRAPH), 1, lambda stage, upstream: Future(), lambda: {}["now"])
