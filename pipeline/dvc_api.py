"""All that we take from DVC beyond its commands: it promises to keep only those, and they tell too little.

So DVC is pinned to a minor release, and the tests of pipeline/ fail where another one has changed it. Its own command,
with what we add to a run of a stage, is in dvc_command.py.
"""

import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil
from dvc.config import Config
from dvc.dependency import param
from dvc.dependency.param import ParamsDependency
from dvc.exceptions import CheckoutError, ConfirmRemoveError, DvcException
from dvc.fs import LocalFileSystem
from dvc.lock import LockError
from dvc.repo import Repo, lock_repo
from dvc.repo.reproduce import get_active_graph, plan_repro
from dvc.stage import PipelineStage, create_stage
from dvc.stage.cache import _can_hash, _get_stage_hash
from dvc.stage.exceptions import StageNotFound
from dvc.stage.loader import StageLoader
from dvc.stage.serialize import to_single_stage_lockfile
from zc.lockfile import LockFile

from pipeline.dvc_command import DVC as DVC


class Overlaid(LocalFileSystem):
    """The files of this machine; the given texts replace some of them, or are added."""

    def __init__(self, texts: Mapping[Path, str]) -> None:
        super().__init__()
        self.texts = {str(file): text for file, text in texts.items()}

    def open(self, path: str, mode: str = "r", **kwargs: Any) -> Any:
        text = self.texts.get(self.abspath(path))
        return super().open(path, mode, **kwargs) if text is None else io.StringIO(text)

    def isfile(self, path: str) -> bool:
        return self.abspath(path) in self.texts or super().isfile(path)

    def exists(self, path: str, *args: Any, **kwargs: Any) -> bool:
        path = self.abspath(path)
        return any(Path(file).is_relative_to(path) for file in self.texts) or super().exists(path, *args, **kwargs)

    def walk(self, top: str, **kwargs: Any) -> Iterator[Any]:
        yield from super().walk(top, **kwargs)
        for file in self.texts:
            if Path(file).is_relative_to(top) and not super().isfile(file):
                yield str(Path(file).parent), [], [Path(file).name]


@contextmanager
def opened(folder: Path, texts: Mapping[Path, str] = MappingProxyType({})) -> Iterator[Repo]:
    """DVC's repository around the folder, once its lock is free; DVC's errors as ValueError.

    `texts`: what DVC is to read in place of files on the disk, which stay as they are.
    """
    try:
        # A folder that is not there yet lies in the project of the one above it.
        start = folder if folder.is_dir() else folder.parent
        with Repo(str(start), fs=Overlaid(texts) if texts else None, _wait_for_lock=True) as repo, lock_repo(repo):
            yield repo
    except DvcException as error:
        raise ValueError(message_of(error)) from error
    except (ValueError, OSError):
        raise
    except Exception as error:  # those of the libraries below it, which its own command prints as a line, too
        raise ValueError(f"DVC cannot go on: {type(error).__name__}: {error}") from error


def message_of(error: DvcException) -> str:
    """The message of DVC's error, in our words where its advice would do harm or names its own options."""
    causes: list[BaseException] = [error]
    while causes[-1].__cause__ is not None:
        causes.append(causes[-1].__cause__)
    text = ": ".join(map(str, causes))
    if isinstance(causes[-1], LockError):
        blocker, _, _ = text.partition("\n\n")  # the rest says how to break its lock
        # DVC names a process for each path that it holds.
        words = " ".join(" ".join(line.split()) for line in dict.fromkeys(blocker.splitlines()))
        return f"another run is at work here, wait until it ends: {words}"
    if isinstance(causes[-1], ConfirmRemoveError):
        path = str(causes[-1]).removeprefix("unable to remove ").partition(" without a ")[0]
        return f"{path} holds files that no run has recorded: delete it or move it away, and try again"
    return f"DVC cannot read the graph: {text}"


def drop_dead_list(root: Path) -> None:
    """Deletes DVC's list of paths in use where a kill has torn it, or where none of its processes runs any more."""
    file = root / ".dvc/tmp/rwlock"
    if not file.exists():
        return
    with closing(LockFile(f"{file}.lock")):  # as DVC does for each change of the list
        text = file.read_text(encoding="utf-8")
        try:
            json.loads(text)
            # DVC takes a zombie, which has ended and waits for its parent, for a process that runs.
            is_in_use = any(is_alive(int(pid)) for pid in re.findall(r'"pid":\s*(\d+)', text))
        except ValueError:
            is_in_use = False
        if not is_in_use:
            file.unlink()


def at_work(repo: Repo, folder: Path) -> str:
    """The process that runs a stage of the graph in this folder, which its caller has locked; empty if none does."""
    with suppress(FileNotFoundError, ValueError):  # none, or one that a kill has torn
        text = Path(repo.tmp_dir, "rwlock").read_text(encoding="utf-8")
        for path, holder in json.loads(text).get("write", {}).items():
            if Path(path).is_relative_to(folder.resolve() / "data") and is_alive(holder["pid"]):
                return f"(PID {holder['pid']}): {holder['cmd']}"
    return ""


def is_alive(pid: int) -> bool:
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def require_git(root: Path) -> None:
    """ValueError where the project is in no git repository, and DVC is not told to do without one."""
    is_in_one = any((folder / ".git").exists() for folder in (root, *root.parents))
    if not is_in_one and not Config(root / ".dvc")["core"]["no_scm"]:
        raise ValueError(f"{root} is in no git repository, and DVC needs one: `git init {root}` makes it")


def stages_of(repo: Repo, file: Path, targets: Iterable[str] = ()) -> list[Any]:
    """The stages of a dvc.yaml, or those of these names (or names before the @); ValueError says which may be meant."""
    try:
        return [stage for name in targets or [""] for stage in repo.stage.collect(f"{file}:{name}".rstrip(":"))]
    except StageNotFound as error:
        whole = [stage.name for stage in repo.stage.collect(str(file))]
        known = dict.fromkeys(name.partition("@")[0] for name in whole)
        raise ValueError(f"no stage {error.name!r} in {file}; {like(error.name, known, whole)}") from error


def like(word: str, known: Iterable[str], others: Iterable[str] = ()) -> str:
    """A hint for an unknown word: the most similar one, else all of `known`."""
    near = get_close_matches(word, [*known, *others], 1)
    return f"did you mean {near[0]}?" if near else f"known here: {', '.join(known) or 'none'}"


def with_sources(repo: Repo, stages: Iterable[Any]) -> list[Any]:
    """These stages and all they read from, sources before readers."""
    return plan_repro(get_active_graph(repo.index.graph), list(stages))


def sources(repo: Repo, stages: Iterable[Any]) -> dict[Any, list[Any]]:
    """The stages that each of these reads from."""
    graph = get_active_graph(repo.index.graph)
    return {stage: list(graph.successors(stage)) for stage in stages}


def changed(stages: Iterable[Any]) -> dict[Any, list[Any]]:
    """The changes of each stale stage, as `dvc repro` sees it: it asks no source of an import for news."""
    # Asked by way of the repository, DVC would read the graph once more.
    load = param.load_path
    param.load_path = cache(load)  # each stage would parse the same file of values
    try:
        told = {stage: stage.status() for stage in stages}
    finally:
        param.load_path = load
    return {stage: entries[stage.addressing] for stage, entries in told.items() if entries}


def values_of(dep: Any) -> tuple[dict, dict] | None:
    """The values that a dependency had when its stage ran, and has now; None if it is not one on values."""
    return (dep.hash_info.value or {}, dep.read_params()) if isinstance(dep, ParamsDependency) else None


def default_remote(root: Path) -> tuple[str, str] | None:
    """The name and the address of the clone's default remote."""
    config = Config(root / ".dvc")
    name = config["core"].get("remote")
    return None if name is None else (name, config["remote"][name]["url"])


@contextmanager
def own_config(root: Path) -> Iterator[dict[str, Any]]:
    """This clone's own part of DVC's configuration, written when the block ends; ValueError where DVC refuses it."""
    try:
        with Config(root / ".dvc").edit("local") as config:
            yield config
    except DvcException as error:
        raise ValueError(f"DVC refuses it: {error}") from error


def entry_of(stage: Any) -> dict:
    """The stage's entry in dvc.lock; for one without a command (`dvc add`, `dvc import`) its own file."""
    return to_single_stage_lockfile(stage) if stage.cmd else stage.dumpd()


def is_recorded(stage: Any) -> bool:
    """Whether dvc.lock holds a result for the stage's present inputs."""
    return not stage.changed_stage() and not stage.changed_deps() and all(out.hash_info for out in stage.outs)


def recorded_runs(repo: Repo, stage: Any, remote: str) -> Iterator[dict]:
    """The runs with the stage's present inputs, known to the remote or here, as entries of dvc.lock."""
    stage.save_deps()
    if not _can_hash(stage):
        return
    key = _get_stage_hash(stage)
    there = repo.cloud.get_remote_odb(remote, "fetch --run-cache", hash_name="md5-dos2unix")
    folder = there.fs.join(there.path, "runs", key[:2], key)
    here = Path(repo.stage_cache.cache_dir, key[:2], key)
    for path in there.fs.find(folder) if there.fs.exists(folder) else []:
        name, partial = there.fs.name(path), Path(repo.tmp_dir, "run.partial")
        if re.fullmatch(r"[0-9a-f]{64}", name) and not (here / name).exists():
            there.fs.get_file(path, str(partial))
            here.mkdir(parents=True, exist_ok=True)  # only now: DVC fails at a folder without a run
            partial.replace(here / name)
    for file in sorted(here.glob("*")):
        if (entry := repo.stage_cache._load_cache(key, file.name)) is not None:
            yield entry


def with_entry(repo: Repo, stage: Any, entry: dict) -> Any:
    """A stage of the same place whose results are those of the entry."""
    # As StageCache._create_stage, which must be called in the stage's folder.
    outs = [out["path"] for out in entry["outs"]]
    result = create_stage(PipelineStage, repo=repo, path=stage.path, cmd=entry["cmd"], wdir=stage.wdir, outs=outs)
    StageLoader.fill_from_lock(result, entry)
    return result


def bring_lists(repo: Repo, stage: Any, remote: str) -> dict[str, Path | None]:
    """The list of files of each of the stage's outputs that is a folder, in the cache; None if the remote lacks it."""
    result = {}
    for out in stage.outs:
        if out.is_dir_checksum:
            if not out.cache.exists(out.hash_info.value):
                repo.cloud.pull({out.hash_info}, remote=remote)
            is_here = out.cache.exists(out.hash_info.value)
            result[str(out)] = Path(out.cache.oid_to_path(out.hash_info.value)) if is_here else None
    return result


def bring(repo: Repo, stage: Any, remote: str, force: bool) -> bool:
    """Brings the stage's outputs into cache and workspace; False if the remote lacks some."""
    for objects in stage.get_used_objs(remote=remote).values():
        repo.cloud.pull(objects, remote=remote)
    if not stage.outs_cached():
        return False
    stage.checkout(force=force)
    return True


def pull(repo: Repo, stage: Any, remote: str) -> bool:
    """Brings the outputs of a stage without a command, as `dvc pull`, or leaves what nobody has recorded."""
    try:
        repo.pull([stage.addressing], remote=remote)
    except CheckoutError:  # the remote lacks some
        return False
    except DvcException:
        if not all(out.exists for out in stage.outs):
            raise
    return True


def record(stages: Iterable[Any]) -> None:
    """Writes what these stages have read and made into dvc.lock: at once, since DVC reads and writes the whole file."""
    files: dict[str, list[Any]] = {}
    for stage in filter(lambda stage: stage.cmd, stages):  # another one's file says itself what it holds
        before = entry_of(stage)
        stage.save(run_cache=False)
        if stage.changed_stage() or entry_of(stage) != before:
            files.setdefault(stage.path, []).append(stage)
    for same in files.values():
        same[0].dvcfile.dump_stages(same, update_pipeline=False)
