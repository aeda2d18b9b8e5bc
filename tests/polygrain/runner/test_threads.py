import os

import pytest

from polygrain.runner import threads

SHORT = threads.WAITS


@pytest.mark.parametrize(
    ("environment", "jobs", "expected"),
    [
        ({}, 1, SHORT),
        ({}, 2, SHORT | {"OMP_NUM_THREADS": "4"}),
        ({}, 3, SHORT | {"OMP_NUM_THREADS": "2"}),
        ({}, 9, SHORT | {"OMP_NUM_THREADS": "1"}),
        ({"POLYGRAIN_PROCESSES": "1"}, 2, SHORT | {"OMP_NUM_THREADS": "4"}),
        ({"POLYGRAIN_PROCESSES": "2"}, 2, SHORT),
        ({"POLYGRAIN_TORCHRUN": "--nproc-per-node 2"}, 2, SHORT),
        ({"OMP_NUM_THREADS": "5", "GOMP_SPINCOUNT": "1", "OPENBLAS_THREAD_TIMEOUT": "4"}, 2, {}),
        ({"OMP_WAIT_POLICY": "active"}, 1, {"OPENBLAS_THREAD_TIMEOUT": SHORT["OPENBLAS_THREAD_TIMEOUT"]}),
    ],
)
def test_variables__what_the_user_has_not_set(environment, jobs, expected, monkeypatch):
    monkeypatch.setattr(threads, "cores", lambda: 8)
    monkeypatch.setattr(os, "environ", environment)
    assert threads.variables(jobs) == expected
