"""The graph one stage after another, and one stage alone, by dvc."""

import signal
import sys
from threading import Event, Timer

import pytest

from pipeline import gpus, graph, run
from tests.helpers import toy


@pytest.mark.slow
def test_run_stage__what_became_of_it(tmp_path, monkeypatch):
    """The last lines are kept without hints of dvc; GPUs are told to the stage."""
    monkeypatch.setenv("POLYGRAIN_SLOTS", str(tmp_path / "slots"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    folder = toy.make(tmp_path / "toy", 2, 1, {"first": "echo on $CUDA_VISIBLE_DEVICES", "second": "seq 50; exit 3"})
    monkeypatch.setenv("PATH", toy.ENVIRONMENT["PATH"])
    lines = []
    assert run.run_stage(folder, "source", lines.append, Event()).result == "ran"
    with gpus.lent({"gpu": 2}, Event()) as shown:
        assert run.run_stage(folder, "first@f0", lines.append, Event(), shown).result == "ran"
    assert "on 5,7" in lines and not any("git add" in line for line in lines)
    assert run.run_stage(folder, "first@f0", lines.append, Event()).result == "cached"
    failed = run.run_stage(folder, "second@s00", lines.append, Event())
    assert failed.result == "failed" and not failed.is_done and len(failed.tail) == 20 and "50" in failed.tail
    stopping = Event()
    Timer(3, stopping.set).start()
    params = folder / "params.json"
    params.write_text(params.read_text().replace("seq 50; exit 3", "sleep 60"))
    assert run.run_stage(folder, "second@s00", lines.append, stopping).result == "stopped"


@pytest.mark.parametrize(("number", "shell"), [(signal.SIGINT, "/bin/sh"), (signal.SIGKILL, "/bin/bash")])
@pytest.mark.slow
def test_main__killed_it_leaves_nothing_and_continues(tmp_path, number, shell):
    folder = toy.make_training(tmp_path / "toy")
    process = toy.start(folder, "run", log=tmp_path / "log", TOY_MARK=str(tmp_path), SHELL=shell)
    toy.wait_for_epoch(folder, process)
    process.send_signal(number)
    assert process.wait(120) != 0 and toy.survivors(str(tmp_path)) == []
    assert "continues after epoch" in toy.polygrain(folder, "run")
    assert toy.texts(folder) == toy.trained() and toy.up_to_date(folder)


@pytest.mark.slow
def test_main__some_stages_and_the_exit_code(tmp_path):
    """Of a stage that ends with a line of its own nothing else is told, but for an error."""
    folder = toy.make(tmp_path / "toy", 2, 2, {"first": ": stages/run first; echo it says why; exit 3"})
    program = "import sys; from pipeline import run; sys.exit(0 if run.main(None, ['first@f1']) == 1 else 1)"
    output = toy.run(folder, sys.executable, "-c", program)
    assert "Running stage 'source'" in output and "Running stage 'first@f1'" not in output
    assert "\nit says why\n" in output and "failed to reproduce 'first@f1'" in output and "\n\n" not in output
    assert "first@f0" not in output and "second" not in output


def test_main__the_model_that_a_run_replaces_is_kept(tmp_path, monkeypatch):
    choice = tmp_path / "data/choice"
    choice.mkdir(parents=True)
    (choice / "config.json").write_text("one")
    (choice / "weights.safetensors").write_text("weights")
    monkeypatch.setattr(run, "composed", lambda *_, **__: (tmp_path, {}))
    monkeypatch.setattr(graph, "load", lambda *_: [graph.Stage("choice", (), True, {})])
    monkeypatch.setattr(run, "repro", lambda *_: (choice / "config.json").write_text("another") and 0)
    assert run.main() == 0
    assert [file.read_text() for file in tmp_path.glob("models/*/config.json")] == ["one"]


@pytest.mark.slow
def test_main__ends_with_the_result_and_its_report(tmp_path, monkeypatch, capsys):
    """Without what dvc tells people at a terminal; a second run, which does nothing, ends with it, too."""
    numbers = '{"result": {"encoder": 22.6, "recommended": 26.7}, "first_hit": {"encoder": 1, "recommended": 2}}'
    folder = toy.make(tmp_path / "toy", 1, 1)
    text = (folder / "dvc.yaml").read_text() + (
        "  report:\n"
        "    cmd: >-\n"
        f"      mkdir -p data/report; echo '{numbers}' > data/report/headline.json; touch data/report/index.html\n"
        "    deps: [data/empty]\n"
        "    outs: [data/report]\n"
    )
    (folder / "data/empty").mkdir(parents=True)
    (folder / "dvc.yaml").write_text(text)
    output = toy.polygrain(folder, "run")
    (last,) = [line for line in output.splitlines() if line.endswith(": open data/report/index.html")]
    assert last.startswith("27 of 100 right among the R nearest (encoder 23)") and "Running stage 'report'" in output
    assert not any(hint in output for hint in ("is empty", "git add", "autostage", "dvc push", "lock file"))
    monkeypatch.chdir(folder)
    for stages, end in ((None, last), (["source"], "0 of 1 stage to do")):
        assert run.main(stages=stages) == 0
        assert capsys.readouterr().out.splitlines()[-1] == end
