"""What README, CONTRIBUTING and docs/ say is held against the project: commands, modules, paths, links, values.

A block of code behind `<!-- run -->` is run as it stands in the text; CONTRIBUTING says how to mark one.
"""

import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image
from ruamel.yaml import YAML
from stages.core.encoder.config import AdaptorConfig, Config
from stages.core.encoder.model import Model, save

from tests.helpers.project import copy_project

ROOT = Path(__file__).parent.parent
WRITTEN = [path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "benchmarks/README.md", *sorted(WRITTEN)]
BLOCK = re.compile(r"(?:^<!-- run:? ?(?P<needs>.*?) ?-->\n)?^```(?P<kind>.*)\n(?P<code>(?:.*\n)*?)^```$", re.M)
GRAPH = YAML(typ="safe").load((ROOT / "dvc.yaml").read_text())["stages"]
FOLDERS = ("stages", "pipeline", "profiles", "docs", "benchmarks", "encoders", "tests", "data")


class Block(NamedTuple):
    page: Path
    code: str
    kind: str
    needs: str | None


def name(path: object) -> str:
    return str(path.relative_to(ROOT)) if isinstance(path, Path) else ""


def blocks(page: Path) -> list[Block]:
    return [Block(page, met["code"], met["kind"], met["needs"]) for met in BLOCK.finditer(page.read_text())]


def inline(page: Path) -> list[str]:
    """What stands in single backticks outside the blocks."""
    return re.findall(r"`([^`\n]+)`", BLOCK.sub("", page.read_text()))


def commands(page: Path) -> list[str]:
    """Lines of shell blocks, and inline code that is a command; comments at the end of a line taken off."""
    lines = [line for block in blocks(page) if not block.kind for line in block.code.replace("\\\n", " ").splitlines()]
    lines += [code for code in inline(page) if re.match(r"make \S|(\.venv/bin/)?(python|dvc) ", code)]
    return [re.sub(r"\s+#.*$", "", line).strip() for line in lines]


def made_profiles() -> set[str]:
    """Profiles that a command of some page makes."""
    return {met for page in PAGES for line in commands(page) for met in re.findall(r"pipeline\.new (\S+)", line)}


def is_profile(profile: str) -> bool:
    return (ROOT / "profiles" / profile).is_dir() or profile in {*made_profiles(), "NAME"}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands__make_knows_them(page: Path) -> None:
    for line in commands(page):
        words = shlex.split(line)
        for i, word in enumerate(words):
            if word == "make" and all("=" in before for before in words[:i]):
                done = subprocess.run(["make", "-n", *words[i + 1 :]], cwd=ROOT, capture_output=True, text=True)
                assert done.returncode == 0, f"{line}: {done.stderr}"
        for profile in re.findall(r"PROFILE=(\S+)|--profile (\S+)", line):
            assert is_profile("".join(profile)), f"{line}: no such profile"
        targets = re.findall(r"TARGETS=(\S+)|dvc repro (?:--\S+ )*(?!profiles)(\w\S*)", line.replace('"', ""))
        assert {"".join(met).split("@")[0] for met in targets} <= set(GRAPH), f"{line}: no such stage"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands__modules_and_programs_exist(page: Path) -> None:
    for line in commands(page) + inline(page):
        for module in re.findall(r"python -m ([\w.]+\w)", line):
            own = ROOT / Path(*module.split("."))
            found = own.with_suffix(".py").exists() or (own / "__main__.py").exists()
            assert found or (module.split(".")[0] not in FOLDERS and importlib.util.find_spec(module)), line
        for program in re.findall(r"python ([\w/]+\.py)", line):
            assert (ROOT / program).exists(), line


def defines(dotted: str) -> bool:
    """Whether a name such as stages.core.x.y is a module, or something that a module defines or imports."""
    parts = dotted.split(".")
    for end in (len(parts), len(parts) - 1):
        place = ROOT.joinpath(*parts[:end])
        if end == len(parts) and (place.is_dir() or place.with_suffix(".py").exists()):
            return True
        if end < len(parts) and place.with_suffix(".py").exists():
            return re.search(rf"\b{parts[-1]}\b", place.with_suffix(".py").read_text()) is not None
    return False


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_paths__named_in_the_text_exist(page: Path) -> None:
    for code in inline(page):
        top, *rest = code.split("/")
        if re.fullmatch(r"(stages|pipeline|benchmarks)(\.\w+)+", code) and not code.endswith((".py", ".md")):
            assert defines(code), f"{code}: no such module or name"
        if top not in FOLDERS or not rest or re.search(r"[<>{}$=\s:]|NAME|\bmine\b", code):
            continue
        if top == "profiles" and rest[0] in made_profiles():
            continue
        if "data" in (top, *rest[1:2]):
            made = rest[rest.index("data") + 1 :] if "data" in rest else rest
            assert [*made, ""][0] in {*GRAPH, "raw", ""}, f"{code}: no stage writes it"
        elif code.startswith("docs/_build"):
            assert (ROOT / "docs/conf.py").exists()  # what `make docs` writes
        else:
            assert list(ROOT.glob(code.rstrip("/"))), f"{code}: no such file"


def anchors(page: Path) -> set[str]:
    text = page.read_text()
    titles = re.findall(r"^#+ (.+)$", BLOCK.sub("", text), re.M)
    return {re.sub(r"[^\w -]", "", t.lower()).replace(" ", "-") for t in titles} | set(
        re.findall(r"^\((.+)\)=$", text, re.M)
    )


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links__lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", BLOCK.sub("", page.read_text())):
        file, _, anchor = target.partition("#")
        if re.match(r"https?:", target):
            continue
        place = (page.parent / file).resolve() if file else page
        if place.is_relative_to(ROOT / "docs/reference/api"):
            continue  # pages made from the sources when the docs are built
        assert place.exists(), f"{target}: no such file"
        assert not anchor or anchor in anchors(place), f"{target}: no such heading"


def test_readme__is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def test_params_reference__covers_every_key() -> None:
    from docs.extensions import params

    sections, shared = params.tables()
    rows = [row for table in [*sections, *shared] for row in table.rows]
    shown = {place for row in rows for place in row.values}
    openings = {f"{table.title}.{row.key}".removeprefix("Lists.") for table in sections for row in table.rows}

    def leaves(value: object, key: str = "") -> list[str]:
        if isinstance(value, dict) and value and key not in shown:
            return [leaf for inner, own in value.items() for leaf in leaves(own, f"{key}.{inner}".lstrip("."))]
        if isinstance(value, list) and value and isinstance(value[0], dict):
            return [leaf for i, own in enumerate(value) for leaf in leaves(own, f"{key}.{i}")]
        return [key]

    values = YAML(typ="safe").load((ROOT / "params.yaml").read_text())
    missing = [leaf for leaf in leaves(values) if leaf not in shown | openings]
    assert not missing
    assert all(row.kind for row in rows)
    assert "`adaptor.gamma`" not in params.markdown(sections[0]) and "| `gamma` | `" in "".join(
        params.markdown(table) for table in sections if table.title == "adaptor"
    )


def draw(folder: Path) -> None:
    """Six small pictures of each of two classes."""
    rng = np.random.default_rng(0)
    for number in range(12):
        file = folder / f"class{number % 2}" / f"{number}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (40, 40, 3), dtype=np.uint8)).save(file)


def write_model(folder: Path) -> None:
    """A random fused model of two adaptor sets."""
    torch.manual_seed(0)
    folder.mkdir(parents=True)
    kwargs = {"img_size": 32, "patch_size": 16, "depth": 2, "embed_dim": 24, "num_heads": 2}
    adaptors = AdaptorConfig(names=["k4", "k8"], width=4, fusion="attention")
    grey = (0.5, 0.5, 0.5)
    config = Config(
        architecture="vit_tiny_patch16_224", kwargs=kwargs, size=32, resize=32, mean=grey, std=grey, adaptors=adaptors
    )
    save(Model(config), folder)


RUN = [
    block for page in PAGES for block in blocks(page) if block.needs is not None and not block.code.startswith("<!--")
]


@pytest.mark.parametrize("block", RUN, ids=lambda block: f"{name(block.page)}: {block.code.splitlines()[0][:40]}")
def test_blocks__run_as_they_stand(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outside, here = tmp_path / "data", tmp_path / "here"
    here.mkdir()
    for need in filter(None, map(str.strip, block.needs.split(";"))):
        what, *places = need.split()
        make = {"images": draw, "model": write_model}[what]
        for place in places:
            make(outside / place.removeprefix("/data/") if place.startswith("/data/") else here / place)
    monkeypatch.chdir(here)
    if block.kind == "python":
        exec(compile(block.code, name(block.page), "exec"), {"__name__": "__main__"})
        return
    copy_project(here)
    code = block.code.replace(".venv/bin/", f"{Path(sys.executable).parent}/").replace("/data/", f"{outside}/")
    done = subprocess.run(["bash", "-e", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_blocks__most_pages_have_some() -> None:
    """The marks are found at all: README's two, and what the concepts and Start run."""
    assert {name(block.page) for block in RUN} >= {"README.md", "docs/start.md", "docs/concepts/gsp.md"}
