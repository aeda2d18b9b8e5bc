"""What a remote hands out comes into the cache only after it was checked; nothing is written into the workspace.

DVC believes its remote: file objects are not hashed unless asked, lists of files never, and the names in those lists
and of the runs become paths. So objects and runs are first fetched into a folder of their own below .dvc/tmp, lists
of files before the files they name; what is not what its name says, or leads out of its output, is named and dropped.
"""

import hashlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dvc.exceptions import DvcException
from dvc.fs import LocalFileSystem
from dvc.fs.callbacks import TqdmCallback
from dvc.repo import Repo
from dvc.stage.cache import _can_hash, _get_stage_hash
from dvc_data.hashfile.db import get_odb

from pipeline import cache, graph, runs, tree

NAME = "team"
"""What DVC calls the remote that a clone shares its results through."""
QUARANTINE = "quarantine-"
AT_ONCE = 64
"""Objects between two moves into the cache: what a broken connection costs."""


def bring(folder: Path, remote: str | None, names: set[str] | None = None) -> None:
    """Brings what dvc.lock records of these stages, of all in the folder without names; ValueError names what is wrong.

    What the remote lacks is left out. Without names all runs come too.
    """
    with reached(folder, remote) as found:
        if names is None:
            found.bring_runs("")
        found.bring_objects(cache.recorded(found.repo.index.stages, folder, names))


def bring_run(folder: Path, remote: str | None, name: str) -> bool:
    """Brings the newest run of a stage with the inputs that it has here, and what that run wrote; whether all came."""
    with reached(folder, remote) as found:
        (stage,) = [stage for stage in found.repo.index.stages if graph.name_of(stage, folder) == name]
        stage.save_deps()
        if not _can_hash(stage):
            return False
        key = _get_stage_hash(stage)
        found.bring_runs(f"{key[:2]}/{key}")
        entry = found.repo.stage_cache._load(stage)
        return entry is not None and found.bring_objects({out["md5"]: out["path"] for out in entry["outs"]})


@contextmanager
def reached(folder: Path, name: str | None) -> Iterator["Remote"]:
    """The remote, without a name the one that is known here. ValueError for all that was refused, and for whatever an
    ssh, S3 or file library raises."""
    with graph.opened(folder) as repo:
        for left in Path(repo.tmp_dir).glob(f"{QUARANTINE}*"):
            shutil.rmtree(left)  # of a fetch that was killed: who holds the repository's lock is alone
        remote = Remote(repo, name)
        try:
            yield remote
        except (ValueError, DvcException):
            raise
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            raise ValueError(f"the remote {remote.name!r} did not give everything: {said}") from error
        if remote.wrong:
            lines = "\n  ".join(dict.fromkeys(remote.wrong))
            raise ValueError(
                f"the remote {remote.name!r} handed out what was not recorded, and nothing of it is used:\n  {lines}\n"
                "Someone has written to it, or its disk fails. `polygrain run` computes what is missing here."
            )


class Bar(TqdmCallback):
    """DVC's bar on a terminal, nothing elsewhere, over all files: each turn would set it to its own number."""

    def set_size(self, size: int | None) -> None:
        pass


class Remote:
    """A DVC remote and this clone's cache; `wrong` gathers what was refused, a line each."""

    def __init__(self, repo: Repo, name: str | None) -> None:
        found = repo.cloud.get_remote(name or repo.config["core"].get("remote") or NAME)
        self.repo, self.name, self.fs, self.path, self.odb = repo, found.name, found.fs, found.path, found.odb
        self.cache = repo.cache.local
        self.wrong: list[str] = []

    def bring_objects(self, wanted: dict[str, str]) -> bool:
        """Brings {object: what it belongs to}, folders with all their files; whether all are in the cache now."""
        for digest, owner in wanted.items():
            if not tree.OBJECT.fullmatch(digest.removesuffix(".dir")):
                self.wrong.append(f"{owner}: is recorded with {digest!r:.200}, which is no md5")
        if self.wrong:
            return False
        folders = {digest: owner for digest, owner in wanted.items() if digest.endswith(".dir")}
        files = {digest: owner for digest, owner in wanted.items() if digest not in folders}
        self._bring(folders, tree.MOST_BYTES, self._listed)
        for digest, owner in folders.items():
            # Also those that were here before: a plain `dvc pull` may have brought them.
            if cache.holds(self.cache, digest):
                listed = self._listed(Path(self.cache.oid_to_path(digest)), owner)
                files |= {file: f"{owner}/{path}" for path, file in listed.items()}
        self._bring(files)
        return all(cache.holds(self.cache, digest) for digest in [*folders, *files])

    def bring_runs(self, below: str) -> None:
        """Brings the records of runs in this folder of theirs (all: empty) that are not here yet."""
        root = self.fs.join(self.path, "runs")
        below = self.fs.join(root, *below.split("/")) if below else root
        if not self.fs.exists(below):
            return
        here = Path(self.repo.stage_cache.cache_dir)
        places = [self.fs.relpath(path, root) for path in self.fs.find(below)]
        places = [place for place in places if not runs.LEFTOVER.fullmatch(place)]
        if strange := [place for place in places if not runs.PLACE.fullmatch(place)]:
            self.wrong += [f"run {place!r:.200}: lies where no run does" for place in strange]
        wanted = {place: f"run {place}" for place in places if place not in strange and not (here / place).exists()}
        paths = {place: self.fs.join(root, *place.split("/")) for place in wanted}
        for place in self._plain(paths, wanted, runs.MOST_BYTES):
            with self._quarantine() as folder:
                file = folder / "run"
                self.fs.get_file(paths[place], str(file))
                try:
                    runs.read(file.read_bytes(), place)
                except ValueError as error:
                    self.wrong.append(f"run {place}: {error}")
                    continue
                (here / place).parent.mkdir(parents=True, exist_ok=True)
                file.replace(here / place)

    def _listed(self, file: Path, owner: str) -> dict[str, str]:
        return cache.listed(file, owner, self.wrong)

    def _bring(
        self, wanted: dict[str, str], most: int | None = None, look: Callable[[Path, str], object] | None = None
    ) -> None:
        """Brings the objects that are not here, in turns; `look` takes away a file that it refuses."""
        paths = {digest: self.odb.oid_to_path(digest) for digest in wanted if not cache.holds(self.cache, digest)}
        sound = self._plain(paths, wanted, most)
        with Bar(len(sound), desc=f"Fetching from {self.name}", unit="file") as bar:
            for start in range(0, len(sound), AT_ONCE):
                some = sound[start : start + AT_ONCE]
                with self._quarantine() as folder:
                    here = get_odb(LocalFileSystem(), str(folder), hash_name="md5")
                    here.add([paths[digest] for digest in some], self.fs, some, check_exists=False, callback=bar)
                    for digest in some:
                        file = Path(here.oid_to_path(digest))
                        if self._has_its_bytes(file, digest, wanted[digest]) and look is not None:
                            look(file, wanted[digest])
                        if file.exists():
                            self.cache.add(str(file), LocalFileSystem(), digest, hardlink=True)

    def _plain(self, paths: dict[str, str], owners: dict[str, str], most: int | None) -> list[str]:
        """Those that are there, as files: a pipe or device in a shared folder would never end."""
        found: list[Any] = self.fs.info(list(paths.values()), return_exceptions=True) if paths else []
        sound = []
        for name, info in zip(paths, found, strict=True):
            if isinstance(info, FileNotFoundError):
                continue
            if isinstance(info, BaseException):
                self.wrong.append(f"{owners[name]}: cannot be read: {info}")
            elif info["type"] != "file":
                self.wrong.append(f"{owners[name]}: is no file on the remote (type {info['type']!r})")
            elif most is not None and (info.get("size") or 0) > most:
                self.wrong.append(f"{owners[name]}: has {info['size']} bytes on the remote, more than {most}")
            else:
                sound.append(name)
        return sound

    def _has_its_bytes(self, file: Path, digest: str, owner: str) -> bool:
        """Whether the file is the object; it is gone if not."""
        with file.open("rb") as stream:
            met = hashlib.file_digest(stream, "md5").hexdigest()
        if met == digest.removesuffix(".dir"):
            return True
        self.wrong.append(f"{owner}: the remote's object {digest} has other bytes (md5 {met})")
        file.unlink()
        return False

    @contextmanager
    def _quarantine(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix=QUARANTINE, dir=self.repo.tmp_dir) as folder:
            yield Path(folder)
