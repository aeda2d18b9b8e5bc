"""Stages that are loaded once and forked do what a fresh start does."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from pipeline import stage_server
from polygrain.runner import threads
from tests.helpers import toy

CORES = len(os.sched_getaffinity(0))
VARIABLES = ("GOMP_SPINCOUNT", "OMP_NUM_THREADS", "OMP_WAIT_POLICY", "OPENBLAS_THREAD_TIMEOUT")
STAGE = f"""\
import json, os, sys, time
if __name__ == "__main__":
    kind = "forked" if "pipeline.stage_server" in open(f"/proc/{{os.getppid()}}/cmdline").read() else "fresh"
    threads = {{name: os.environ[name] for name in {VARIABLES} if name in os.environ}}
    print(json.dumps([kind, os.getcwd(), sys.argv[1:], os.environ.get("WORD"), threads]), flush=True)
    if sys.argv[1] == "sleep":
        open("pid", "w").write(str(os.getpid()))
        time.sleep(60)
    sys.exit(int(sys.argv[1]))
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    """A project with a stage that tells how it was started."""
    root = tmp_path_factory.mktemp("project")
    for name in ("pipeline", "polygrain"):
        shutil.copytree(toy.ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    (root / "stages").mkdir()
    (root / "stages/__init__.py").touch()
    (root / "stages/one.py").write_text(STAGE)
    shutil.copy(toy.ROOT / "stages/run", root / "stages")
    return root


@pytest.fixture(scope="module")
def served(root) -> dict[str, str]:
    with stage_server.serving(root) as environment:
        yield environment


def call(root: Path, folder: Path, environment: dict[str, str], *arguments: str) -> subprocess.Popen:
    """The stage, started as DVC does, by a user who has activated the environment."""
    variables = os.environ | {"PATH": toy.ENVIRONMENT["PATH"], "PS1": "(venv) $ "} | environment
    command = [root / "stages/run", "one", *arguments]
    return subprocess.Popen(command, cwd=folder, env=variables, stdout=subprocess.PIPE, text=True)


def told(root: Path, folder: Path, environment: dict[str, str], *arguments: str) -> list:
    """What the stage says of its start, and its exit code."""
    process = call(root, folder, environment, *arguments)
    return [*json.loads(process.communicate(timeout=60)[0]), process.returncode]


def test_ask__a_fork_has_the_callers_folder_arguments_variables_and_exit_code(root, served, tmp_path):
    for code in (0, 7):
        given = served | {"WORD": "said", "CUDA_VISIBLE_DEVICES": "1"}
        kind, folder, words, word, _, ended = told(root, tmp_path, given, str(code), "a b")
        assert (kind, folder, words, word, ended) == ("forked", str(tmp_path), [str(code), "a b"], "said", code)


@pytest.mark.parametrize(
    "environment", [{"OMP_NUM_THREADS": "3"}, {"GOMP_SPINCOUNT": "3"}, {stage_server.SOCKET: "/nowhere"}]
)
def test_ask__a_fresh_start_where_a_fork_would_differ(root, served, tmp_path, environment):
    kind, *_, ended = told(root, tmp_path, served | environment, "3")
    assert (kind, ended) == ("fresh", 3)


@pytest.mark.parametrize("own", [{}, {"OMP_WAIT_POLICY": "passive"}, {"GOMP_SPINCOUNT": "7"}])
def test_stages_run__threads_wait_as_those_of_commands(root, own, monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    kind, *_, variables, _ = told(root, root, {}, "0")
    assert (kind, variables) == ("fresh", threads.variables() | own)


def test_serving__jobs_share_the_cores_and_only_a_project_has_a_server(root, tmp_path, monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    with stage_server.serving(root, CORES) as environment:
        kind, *_, variables, _ = told(root, root, environment, "0")
    assert (kind, variables) == ("forked", threads.WAITS | {"OMP_NUM_THREADS": "1"})
    with stage_server.serving(tmp_path) as environment:
        assert stage_server.SOCKET not in environment


@pytest.mark.slow
def test_load__wakes_no_gpu():
    """What is forked after CUDA has started cannot use it."""
    program = "import torch; calls = []\n"
    for name in ("_cuda_init", "_cuda_getDeviceCount"):
        program += f"torch._C.{name} = lambda *a: calls.append('{name}') or 0\n"
    program += "from pipeline import stage_server; stage_server.load(); print(calls)"
    done = subprocess.run([sys.executable, "-c", program], cwd=toy.ROOT, check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("variables", "gpu", "threads", "level"),
    [
        ({"POLYGRAIN_PROCESSES": "2"}, False, max(1, CORES // 2), "FATAL"),
        ({"POLYGRAIN_TORCHRUN": f"--nnodes 2 --nproc-per-node={9 * CORES}"}, True, 1, "ERROR"),
        ({"POLYGRAIN_TORCHRUN": "--nproc-per-node gpu"}, True, 1, "ERROR"),
        ({"POLYGRAIN_PROCESSES": "2", "OMP_NUM_THREADS": "5", "TORCH_CPP_LOG_LEVEL": "INFO"}, True, 5, "INFO"),
    ],
)
def test_stages_run__processes_share_the_cores_and_a_lost_one_is_logged(tmp_path, variables, gpu, threads, level):
    for name in ["torchrun", *(["nvidia-smi"] if gpu else [])]:
        program = tmp_path / ".venv/bin" / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text('#!/bin/sh\necho "$OMP_NUM_THREADS $TORCH_CPP_LOG_LEVEL"\n')
        program.chmod(0o755)
    (tmp_path / "stages").mkdir()
    shutil.copy(toy.ROOT / "stages/run", tmp_path / "stages")
    shutil.copy(toy.ROOT / "dvc.yaml", tmp_path)
    usual = {name: text for name, text in os.environ.items() if name not in ("OMP_NUM_THREADS", "TORCH_CPP_LOG_LEVEL")}
    command = [tmp_path / "stages/run", "adaptor"]
    done = subprocess.run(command, env=usual | variables, check=True, capture_output=True, text=True)
    assert done.stdout == f"{threads} {level}\n"


@contextmanager
def killable(root: Path) -> Iterator[tuple[dict[str, str], psutil.Process]]:
    """A server of its own, as a process too."""
    before = {*psutil.Process().children()}
    with stage_server.serving(root) as environment:
        (server,) = {*psutil.Process().children()} - before
        yield environment, server


def test_ask__a_fresh_start_after_the_server_has_died(root, tmp_path):
    with killable(root) as (environment, server):
        server.kill()
        server.wait()
        assert told(root, tmp_path, environment, "3")[0] == "fresh"


def test_ask__a_server_that_dies_during_a_stage_ends_it(root, tmp_path):
    with killable(root) as (environment, server), call(root, tmp_path, environment, "sleep") as process:
        assert process.stdout.readline().startswith('["forked"')
        server.kill()
        assert process.wait(10) != 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_ask__the_stage_ends_with_who_asked_for_it(root, served, tmp_path, number):
    process = call(root, tmp_path, served, "sleep")
    assert process.stdout.readline().startswith('["forked"')
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        time.sleep(0.01)
    process.send_signal(number)
    with process:
        assert process.wait(10) == -number
    psutil.wait_procs([one for one in psutil.process_iter() if str(one.pid) == (tmp_path / "pid").read_text()], 10)
    assert not Path("/proc", (tmp_path / "pid").read_text()).exists()


def test_serving__ends_with_its_starter_and_leaves_nothing(root, tmp_path):
    program = (
        "import sys, time; from pathlib import Path; from pipeline import stage_server\n"
        "with stage_server.serving(Path(sys.argv[1])) as found:\n    print(found, flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", program, str(root)]
    mark = {"TOY_MARK": str(tmp_path)}
    with subprocess.Popen(command, env=toy.ENVIRONMENT | mark, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline()
        process.kill()
    assert toy.survivors(str(tmp_path)) == []


def test_ask__sources_that_have_changed_are_loaded_afresh(root, served, tmp_path):
    told(root, tmp_path, served, "0")  # the server loads its sources when it is first asked
    (root / "polygrain/more.py").touch()
    assert told(root, tmp_path, served, "0")[0] == "fresh"
