"""The command line: its words, its exit codes, and what starts fast stays fast."""

import ast
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from polygrain.cli import main as command
from polygrain.cli.options import require_model
from polygrain.runner import threads
from tests.helpers.small import write_encoder

ROOT = Path(__file__).parents[3]
COMMANDS = sorted(
    path.stem for path in (ROOT / "polygrain/cli").glob("*.py") if path.stem not in ("__init__", "main", "options")
)


def test_commands__one_for_each_file():
    assert sorted(get_command(command.app).commands) == COMMANDS


@pytest.mark.parametrize("name", COMMANDS)
def test_help__says_what_it_does_and_shows_an_example_that_is_a_right_line(name):
    output = CliRunner().invoke(command.app, [name, "--help"]).output
    examples = re.findall(r"^ *Example: polygrain (.*(?:\n {2,}\S.*)*)", output, re.M)
    assert examples
    for example in examples:
        words = shlex.split(example)
        assert words[0] == name
        # It refuses words that the command does not take.
        get_command(command.app).commands[name].make_context(name, words[1:])


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help__no_line_is_cut(name):
    output = CliRunner().invoke(command.app, [*filter(None, [name]), "--help"]).output
    assert [line for line in output.splitlines()[1:] if line.endswith("...")] == []  # the first is of words


def test_announced__each_command_says_how_it_begins_before_it_loads_what_is_large(tmp_path):
    """On stderr, since other programs read stdout."""
    large = ["dvc", "faiss", "numpy", "prefect", "psutil", "pyarrow", "ruamel", "timm", "torch"]
    words = {"new": "mine --images a --images b", "embed": ". -o e", "search": "a.png --in .", "smooth": "v -o s"}
    lines = [[name, *words.get(name, "").split()] for name in COMMANDS]
    code = f"""
import sys
sys.modules |= dict.fromkeys({large})
from typer.testing import CliRunner
from polygrain.cli.main import app
for line in {lines}:
    done = CliRunner().invoke(app, line)
    print([line[0], type(done.exception).__name__, done.stdout, done.stderr])
"""
    environment, program = os.environ | {"PYTHONPATH": str(ROOT)}, [sys.executable, "-c", code]
    done = subprocess.run(program, cwd=tmp_path, env=environment, capture_output=True, text=True)
    told = list(map(ast.literal_eval, done.stdout.splitlines()))
    assert [name for name, *_ in told] == COMMANDS, done.stderr
    for name, error, output, announced in told:
        assert error == "ModuleNotFoundError" and output == "" and re.fullmatch(rf"{name}: .* \.\.\.\n", announced)


@pytest.mark.slow
def test_main__what_cannot_be_done_is_one_line_and_exit_code_1(tmp_path):
    program = [sys.executable, "-m", "polygrain", "model", "gone"]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    done = subprocess.run(program, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout == ""
    assert re.fullmatch(r"model: loading the model gone ...\nerror: gone/config.json .*\n", done.stderr)


@pytest.mark.parametrize(
    "words", [["model"], ["export"], ["embed", ".", "-o", "e.parquet"], ["search", "--in", ".", "a.png"]]
)
def test_require_model__names_the_model_of_a_profile(tmp_path, monkeypatch, words):
    write_encoder(tmp_path / "profiles/shop/data/choice")
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(command.app, words)
    assert "data/choice holds no model; name one that is here: profiles/shop/data/choice" in str(done.exception)
    for named in ("profiles/shop", "shop"):
        with pytest.raises(ValueError, match=f"^{named} holds no model; .*: profiles/shop/data/choice$"):
            require_model(Path(named))


def test_main__threads_wait_shortly(monkeypatch):
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    monkeypatch.setattr(command, "app", lambda **options: None)
    command.main()
    assert os.environ["GOMP_SPINCOUNT"] == threads.WAITS["GOMP_SPINCOUNT"]


def test_model__says_what_the_folder_holds(tmp_path):
    write_encoder(tmp_path / "model")
    output = CliRunner().invoke(command.app, ["model", str(tmp_path / "model")]).output
    assert "vit_tiny_patch16_224" in output and re.search(r"digest: +[0-9a-f]{16}\n", output)


def test_run__a_clone_is_run_by_its_own_program(tmp_path, monkeypatch):
    (tmp_path / ".dvc").mkdir()
    (tmp_path / "pipeline").mkdir()
    (tmp_path / "dvc.yaml").write_text("stages: {}\n")
    monkeypatch.chdir(tmp_path)
    error = CliRunner().invoke(command.app, ["run"]).exception
    assert isinstance(error, ValueError) and f"run {tmp_path}/.venv/bin/polygrain there" in str(error)


def test_main__a_name_that_the_locale_cannot_write_is_named(monkeypatch):
    monkeypatch.setattr(command, "app", lambda **_: "caf\udce9.parquet".encode())
    with pytest.raises(SystemExit, match=r"^error: 'caf.udce9\.parquet' is no UTF-8 .*set PYTHONUTF8=1"):
        command.main()
