"""A remote that someone else has written to: objects, lists of files and runs that lie, read by `polygrain fetch`.

Each attack changes a copy of an honest remote, and where it says so what the clone's dvc.lock records, as a commit or
a run would. Then a fresh clone fetches and checks out what it has. Nothing but honest outputs may be in the clone
afterwards, and nothing changed around it.
"""

import hashlib
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from dvc.stage.cache import _get_cache_hash
from ruamel.yaml import YAML

from benchmarks.hostile.outcome import Outcome, Verdict
from tests.pipeline import toy

COUNT = 131
SECONDS = 60
PLANTED = Path(tempfile.gettempdir()) / "polygrain-planted"
HOOK = "../../.git/hooks/post-checkout"
PATHS = {
    "parents": HOOK,
    "one parent": "../planted",
    "parent inside": "a/../../planted",
    "absolute": str(PLANTED),
    "doubled slash": f"/{PLANTED}",
    "empty": "",
    "dot": ".",
    "two dots": "..",
    "dot part": "./text",
    "empty part": "a//text",
    "trailing slash": "text/",
    "backslash": "..\\planted",
    "nul": "text\x00.png",
    "newline": "te\nxt",
    "surrogate": "\udc80",
    "git": ".git/config",
    "git in capitals": ".GIT/config",
    "dvc": "a/.dvc/config",
    "graph": "dvc.yaml",
    "ignore": ".dvcignore",
    "too long": "a/" * 2000 + "text",
    "long name": "a" * 300,
    "number": 1,
    "null": None,
    "list": ["text"],
}
DIGESTS = {
    "parents": "../../../planted",
    "absolute": str(PLANTED),
    "short": "0" * 31,
    "capitals": "A" * 32,
    "a folder": "0" * 32 + ".dir",
    "number": 1,
    "null": None,
    "list": ["0" * 32],
    "newline": "0" * 32 + "\n",
}


def entry(**changes: object) -> dict:
    return {"md5": hashlib.md5(b"source\n").hexdigest(), "relpath": "text"} | changes


LISTS = {f"relpath {name}": json.dumps([entry(relpath=path)]).encode() for name, path in PATHS.items()}
LISTS |= {f"md5 {name}": json.dumps([entry(md5=digest)]).encode() for name, digest in DIGESTS.items()}
LISTS |= {
    "executable": json.dumps([entry(isexec=True)]).encode(),
    "version": json.dumps([entry(version_id="1")]).encode(),
    "cloud": json.dumps([entry(cloud={})]).encode(),
    "twice": json.dumps([entry(), entry(md5="0" * 32)]).encode(),
    "file and folder": json.dumps([entry(), entry(relpath="text/a")]).encode(),
    "keys twice": b'[{"md5": "%s", "relpath": "text", "relpath": "../planted"}]' % entry()["md5"].encode(),
    "no relpath": b'[{"md5": "%s"}]' % entry()["md5"].encode(),
    "no md5": b'[{"relpath": "text"}]',
    "object": b"{}",
    "text": b'"text"',
    "nothing": b"",
    "entries of text": b'["text"]',
    "deep": b"[" * 100_000,
    "other encoding": json.dumps([entry()]).encode("utf-16"),
    "no text": b"\xff\xfe\x00",
}


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def link(target: str) -> Callable[[Path], None]:
    def place(file: Path) -> None:
        file.unlink()
        file.symlink_to(target)

    return place


def folder(file: Path) -> None:
    file.unlink()
    (file / "inside").mkdir(parents=True)


def listen(file: Path) -> None:
    file.unlink()
    with socket.socket(socket.AF_UNIX) as ear:
        here = Path.cwd()
        os.chdir(file.parent)  # the address of a socket may have 107 bytes
        ear.bind(file.name)
        os.chdir(here)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "one bit": flip,
    "cut": lambda file: file.write_bytes(file.read_bytes()[:-1]),
    "empty": lambda file: file.write_bytes(b""),
    "longer": lambda file: file.write_bytes(file.read_bytes() + b"\n"),
    "other": lambda file: file.write_bytes(b"other\n"),
    "gone": Path.unlink,
    "pipe": pipe,
    "socket": listen,
    "endless": link("/dev/zero"),
    "elsewhere": link("/etc/hostname"),
    "dangling": link("/nowhere"),
    "circle": link("."),
    "folder": folder,
}


class World:
    """An honest remote, and a clone of what was pushed to it."""

    def __init__(self, folder: Path) -> None:
        owner = toy.make(folder / "owner", first=1, second=1)
        toy.run(owner, "dvc", "repro")
        toy.commit(owner)
        self.remote, self.clone, self.folder = folder / "remote", folder / "clone", folder
        toy.run(owner, sys.executable, "-m", "polygrain", "share", "--remote", str(self.remote))
        toy.run(folder, "git", "clone", "-q", str(owner), "clone")
        self.honest = toy.texts(owner)
        self.lock = YAML(typ="safe").load((owner / "dvc.lock").read_text())["stages"]

    def recorded(self, stage: str = "source") -> str:
        return self.lock[stage]["outs"][0]["md5"]


class Case:
    """A copy of the world that one attack may change."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world, self.folder = world, folder
        self.remote = Path(shutil.copytree(world.remote, folder / "remote"))
        self.clone = Path(shutil.copytree(world.clone, folder / "place" / "clone", symlinks=True))

    def object(self, digest: str) -> Path:
        return self.remote / "files/md5" / digest[:2] / digest[2:]

    def record(self, data: bytes) -> str:
        """Puts a list of files among the objects under its true name, and into the clone's dvc.lock for `source`."""
        digest = hashlib.md5(data).hexdigest() + ".dir"
        self.object(digest).parent.mkdir(parents=True, exist_ok=True)
        self.object(digest).write_bytes(data)
        lock = self.clone / "dvc.lock"
        lock.write_text(lock.read_text().replace(self.world.recorded(), digest))
        return digest

    def runs(self) -> list[Path]:
        return sorted(path for path in self.remote.glob("runs/*/*/*"))

    def forget(self) -> None:
        """The clone knows no run of its own, so that those of the remote count."""
        (self.clone / "dvc.lock").unlink()

    def rewrite(self, change: Callable[[dict], object], names: bool = True) -> None:
        """Changes every run of the remote, under names that fit it or under those it had."""
        self.forget()
        for file in self.runs():
            run = YAML(typ="safe").load(file.read_text())
            change(run)
            target = file
            if names:
                key, value = (_get_cache_hash(json.loads(json.dumps(run)), key=has) for has in (True, False))
                target = self.remote / "runs" / key[:2] / key / value
                file.unlink()
            target.parent.mkdir(parents=True, exist_ok=True)
            YAML().dump(run, target)

    def replace_runs(self, data: bytes) -> None:
        self.forget()
        for file in self.runs():
            file.write_bytes(data)

    def place(self, path: str) -> None:
        """A run of the remote under a name that none has."""
        (self.remote / "runs" / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(self.runs()[0], self.remote / "runs" / path)


def outs(**changes: object) -> Callable[[dict], object]:
    return lambda run: [out.update(changes) for out in run["outs"]]


BOMB = b"".join(b"a%d: &a%d [%s]\n" % (i, i, b",".join([b"*a%d" % (i - 1)] * 9) or b"x") for i in range(1, 12))
BOMB = b"a0: &a0 [x]\n" + BOMB
RUNS: dict[str, Callable[[Case], object]] = {
    "other outputs, old name": lambda case: case.rewrite(outs(path="Makefile"), names=False),
    "other outputs": lambda case: case.rewrite(outs(path="Makefile")),
    "outputs outside": lambda case: case.rewrite(outs(path="../planted"), names=False),
    "outputs in git": lambda case: case.rewrite(outs(path=".git/hooks"), names=False),
    "absolute outputs": lambda case: case.rewrite(outs(path=str(PLANTED)), names=False),
    "more outputs": lambda case: case.rewrite(
        lambda run: run["outs"].append(run["outs"][0] | {"path": "stages"}), names=False
    ),
    "other command": lambda case: case.rewrite(lambda run: run.update(cmd="touch planted"), names=False),
    "other command, its name": lambda case: case.rewrite(lambda run: run.update(cmd="touch planted")),
    "other inputs": lambda case: case.rewrite(lambda run: run.update(deps=[]), names=False),
    "executable outputs": lambda case: case.rewrite(outs(isexec=True)),
    "files in outputs": lambda case: case.rewrite(outs(files=[{"relpath": HOOK, "md5": "0" * 32}])),
    "cloud versions": lambda case: case.rewrite(outs(cloud={"team": {"etag": "1"}})),
    "hash of parents": lambda case: case.rewrite(outs(md5="../../../planted")),
    "hash of another kind": lambda case: case.rewrite(outs(hash="sha256")),
    "no hash": lambda case: case.rewrite(lambda run: [out.pop("md5") for out in run["outs"]]),
    "size of text": lambda case: case.rewrite(outs(size="many")),
    "false bytes": lambda case: case.rewrite(outs(md5="0" * 32), names=False),
    "a bomb of aliases": lambda case: case.replace_runs(BOMB),
    "an alias of itself": lambda case: case.replace_runs(b"cmd: &a [*a]\n"),
    "deep": lambda case: case.replace_runs(b"cmd: " + b"[" * 100_000),
    "no text": lambda case: case.replace_runs(b"\xff\xfe\x00"),
    "empty": lambda case: case.replace_runs(b""),
    "list": lambda case: case.replace_runs(b"- cmd\n"),
    "no command": lambda case: case.replace_runs(b"outs: []\n"),
    "object of Python": lambda case: case.replace_runs(b"!!python/object/apply:os.system ['touch planted']\n"),
    "large": lambda case: case.replace_runs(b"#" * 2**20),
    "strange name": lambda case: case.place("planted"),
    "strange key": lambda case: case.place("ab/planted/planted"),
    "deeper": lambda case: case.place(f"ab/ab{'0' * 62}/{'0' * 64}/planted"),
    "leftover": lambda case: case.place(f"ab/ab{'0' * 62}/.x.tmp"),
    "control characters": lambda case: case.place("ab/\x1b[2J\n/x"),
    **{
        f"{name}": lambda case, damage=damage: (case.forget(), [damage(file) for file in case.runs()])
        for name, damage in DAMAGES.items()
    },
    **{
        f"list of files with {name}": lambda case, data=LISTS[name]: case.rewrite(outs(md5=case.record(data)))
        for name in ("relpath parents", "relpath absolute", "relpath git", "md5 parents", "executable", "deep")
    },
}
ATTACKS: dict[str, Callable[[Case], object]] = {
    **{f"list recorded, {name}": lambda case, data=data: case.record(data) for name, data in LISTS.items()},
    **{
        f"list replaced, {name}": lambda case, data=data: case.object(case.world.recorded()).write_bytes(data)
        for name, data in LISTS.items()
        if name in ("relpath parents", "md5 parents", "executable", "twice", "nothing", "deep", "no text")
    },
    **{
        f"{kind}, {name}": lambda case, damage=damage, digest=digest: damage(case.object(digest(case.world)))
        for kind, digest in (
            ("file", lambda world: hashlib.md5(b"source\n").hexdigest()),
            ("list", lambda world: world.recorded("last")),
        )
        for name, damage in DAMAGES.items()
    },
    **{f"run, {name}": attack for name, attack in RUNS.items()},
}


OWN = ("data", "dvc.lock", ".dvc/cache", ".dvc/tmp", ".dvc/config.local", ".git/index")
"""What fetching may change in a clone; outputs and dvc.lock must be the honest ones."""


def recorded(case: Case) -> dict:
    lock = case.clone / "dvc.lock"
    return YAML(typ="safe").load(lock.read_text())["stages"] if lock.exists() else {}


def around(case: Case) -> dict[str, str]:
    """All that is there but what fetching may change, with its bytes and mode."""
    own = {case.clone / name for name in OWN}
    found = {path: path.lstat().st_mode for path in (case.folder / "place").rglob("*")}
    found = {path: mode for path, mode in found.items() if not own & {path, *path.parents}}
    return {str(path): f"{mode} {path.read_bytes() if path.is_file() else ''}" for path, mode in found.items()} | (
        {str(PLANTED): "there"} if PLANTED.exists() else {}
    )


def fetch(case: Case) -> tuple[int | None, str]:
    """How `polygrain fetch` ended, None if it did not, and what it said."""
    command = [sys.executable, "-m", "polygrain", "fetch", "--remote", str(case.remote)]
    try:
        done = subprocess.run(
            command, cwd=case.clone, env=toy.ENVIRONMENT, capture_output=True, text=True, timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        return None, f"no end after {SECONDS} s"
    # What is in the cache by now, plain DVC may bring out.
    subprocess.run(
        [sys.executable, "-m", "dvc", "checkout", "--force", "--allow-missing"],
        cwd=case.clone,
        env=toy.ENVIRONMENT,
        capture_output=True,
        timeout=SECONDS,
    )
    return done.returncode, done.stdout + done.stderr


def verdict(case: Case, before: dict[str, str], known: dict, code: int | None, said: str) -> Verdict:
    if code is None:
        return "hang"
    if around(case) != before:
        return "escape"
    honest, lock = case.world.honest, case.world.lock
    if any(honest.get(path) != data for path, data in toy.texts(case.clone).items()):
        return "silent"
    if any(run not in (lock.get(name), known.get(name)) for name, run in recorded(case).items()):
        return "silent"
    if "Traceback" in said or (code and not said.startswith("error: ")):
        return "raw"
    return "clear" if code else "fine"


def run(count: int, seed: int, folder: Path) -> Iterator[Outcome]:
    world = World(folder / "world")
    names = list(ATTACKS)
    random.Random(seed).shuffle(names)
    for number, name in enumerate(names[:count]):
        case = Case(world, folder / f"case{number}")
        ATTACKS[name](case)
        before, known = around(case), recorded(case)
        code, said = fetch(case)
        yield Outcome(name, verdict(case, before, known, code, said), said.strip()[:300])
        shutil.rmtree(case.folder)
