"""The dvc command as our runs call it: a result is recorded only if its inputs have stayed the same.

It is run as a file, so it imports none of its neighbours.
"""

import logging
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dvc import dvcfile
from dvc.cli import main
from dvc.dependency import param
from dvc.dependency.param import ParamsDependency
from dvc.exceptions import DvcException
from dvc.repo import Repo
from dvc.stage import Stage
from dvc.stage.cache import StageCache
from dvc.ui import ui
from dvc.utils.serialize import YAMLError, dumps_yaml, modify_yaml, parse_yaml

from polygrain.runner import inputs

# dvc itself, by way of the end of this file. Without the last flag, a stage that ends while another dvc hashes for more
# than 3 seconds is lost. Without -P, modules of this folder would hide others of the same names.
DVC = [sys.executable, "-P", __file__, "--wait-for-lock"]
# DVC's hints for people who type its commands, and its warning for the folder of each branch that is off.
HINTS = (
    "\nTo track the changes",
    "\nTo enable auto staging",
    "'%s' is empty.",
    "Generating lock file",
    "Updating lock file",
)
if "--single-item" not in sys.argv:  # what is not stale a run says once, before it starts
    HINTS += ("Stage '%s' didn't change", "'%s' didn't change")


def is_told(record: logging.LogRecord) -> bool:
    """Whether a line of DVC is for users; a blank one has no message, an error has an exception in its place."""
    return bool(record.msg or record.exc_info) and not str(record.msg).startswith(HINTS)


for handler in logging.getLogger("dvc").handlers:
    handler.addFilter(is_told)


def hashes_of(stage: Any) -> dict[str, Any]:
    """DVC's last record of the stage's inputs: each path with its hash, each full name with its value."""
    result: dict[str, Any] = {}
    for dep in stage.deps:
        result |= dep.hash_info.value or {} if isinstance(dep, ParamsDependency) else {str(dep): dep.hash_info}
    return result


def put_back(stage: Any) -> None:
    """Brings the outputs that dvc.lock names and that are gone from the cache: DVC removes them before it runs."""
    for out in stage.outs:
        with suppress(Exception):  # not in the cache; what made the stage fail is what the user has to know
            if stage.cmd and out.hash_info and not out.exists:
                out.checkout(force=True)


@contextmanager
def modified_lock(path: str, fs: Any = None) -> Iterator[dict[str, Any]]:
    """`modify_yaml` of dvc.lock, which keeps the text of the stages that stay as they are.

    DVC parses and dumps all of them after each stage, by ruamel's slow parser: of a graph of 60 stages, for a second.
    """
    file = Path(path)
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    data = parse_yaml(text, path) if text else {}
    before = dict(data.get("stages") or {})
    yield data
    blocks = re.split(r"(?m)^(?=  \S)", text)[1:]
    is_usual = len(blocks) == len(before) and "&id" not in text  # an anchor serves all stages
    known = dict(zip(before, blocks, strict=True)) if is_usual else {}
    parts = [dumps_yaml({key: value for key, value in data.items() if key != "stages"}), "stages:\n"]
    for name, entry in data["stages"].items():
        is_same = name in known and entry == before[name]
        parts.append(known[name] if is_same else dumps_yaml({"stages": {name: unshared(entry)}}).partition("\n")[2])
    made, is_right = "".join(parts), False
    with suppress(YAMLError):  # a file that someone has edited
        is_right = parse_yaml(made, path) == data
    file.write_text(made if is_right else dumps_yaml(unshared(data)), encoding="utf-8")


def unshared(value: Any) -> Any:
    """A copy in which nothing stands twice, so that YAML needs no anchors."""
    if isinstance(value, dict):
        return {key: unshared(one) for key, one in value.items()}
    return [unshared(one) for one in value] if isinstance(value, list) else value


def parsed_once(load: Callable[..., Any]) -> Callable[..., Any]:
    """DVC's `load_path`, for a file that is parsed anew only after a change: each stage asks for one 14 times."""
    known: dict[str, tuple[tuple[int, ...], Any]] = {}

    def loaded(path: str, fs: Any = None, **options: Any) -> Any:
        status = os.stat(path)
        state = (status.st_ino, status.st_size, status.st_mtime_ns)
        if known.get(path, ((), None))[0] != state:
            known[path] = state, load(path, fs, **options)
        return known[path][1]

    return loaded


def record_only_what_ran() -> None:
    """Has DVC compare a stage's inputs before its run with their hashes after it (treeverse/dvc#11058).

    What a stage says that it needs no more goes after that; one that fails gets its last result back.
    """
    run, run_command, save = Stage.run, Stage._run_stage, StageCache.save

    def watched_command(stage: Any, dry: bool, force: bool, **options: Any) -> None:
        # One of ours ends with a line of its own.
        level = logging.WARNING if "stages/run " in str(stage.cmd) else logging.INFO
        logging.getLogger("dvc.stage.run").setLevel(level)
        if force and not dry:
            stage.save_deps()  # else DVC has done so, to look for a known run
        run_command(stage, dry, force, **options)
        stage.before = hashes_of(stage)

    def checked_save(cache: Any, stage: Any) -> None:
        try:
            # Nothing has run of data sources, of imports, and of a stage that is frozen.
            inputs.require_same(getattr(stage, "before", {}), hashes_of(stage))
        except ValueError as error:
            raise DvcException(str(error)) from None
        save(cache, stage)

    def careful_run(stage: Any, *arguments: Any, **options: Any) -> None:
        finished = Path(stage.repo.tmp_dir, f"finished.{os.getpid()}")
        os.environ[inputs.FINISHED] = str(finished)
        try:
            run(stage, *arguments, **options)
            for folder in finished.read_text(encoding="utf-8").splitlines() if finished.exists() else ():
                shutil.rmtree(folder, ignore_errors=True)
        except BaseException:
            put_back(stage)
            raise
        finally:
            finished.unlink(missing_ok=True)

    def modify(path: str, fs: Any = None) -> Any:
        return (modified_lock if Path(path).name == dvcfile.LOCK_FILE else modify_yaml)(path, fs=fs)

    Stage.run, Stage._run_stage, StageCache.save = careful_run, watched_command, checked_save
    dvcfile.modify_yaml, param.load_path = modify, parsed_once(param.load_path)


if __name__ == "__main__":
    if sys.argv[1:2] == ["put-back"]:  # by a stage that has failed, whose DVC holds the lock
        with Repo() as repo:
            put_back(repo.stage.load_one("dvc.yaml", sys.argv[2]))
        raise SystemExit
    record_only_what_ran()
    ui.enable = lambda: None  # it would only advise `dvc push`
    raise SystemExit(main())
