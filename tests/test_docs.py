"""What README, CONTRIBUTING and docs/ say is held against the project: commands, modules, paths, links, values."""

import importlib.util
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from pydantic import BaseModel
from ruamel.yaml import YAML
from typer.main import get_command

from docs.extensions.reference import models
from polygrain.cli import main as command
from tests.helpers.docs_text import BLOCK, PAGES, ROOT, blocks, commands, inline, name

GRAPH = YAML(typ="safe").load((ROOT / "dvc.yaml").read_text())["stages"]
FOLDERS = ("polygrain", "stages", "pipeline", "profiles", "docs", "benchmarks", "encoders", "tests", "data")


def made_profiles() -> set[str]:
    """Profiles that a command of some page makes."""
    return {met for page in PAGES for line in commands(page) for met in re.findall(r"polygrain new (\S+)", line)}


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
def test_commands__polygrain_takes_their_words(page: Path) -> None:
    known = get_command(command.app).commands
    for line in commands(page):
        words = shlex.split(line.rpartition("&&")[2])
        if not words or Path(words[0]).name != "polygrain" or words[1].startswith(("...", "--")):
            continue
        assert words[1] in known, f"{line}: no such command"
        assert {word for word in words if word.startswith("--")} <= {
            option for parameter in known[words[1]].params for option in parameter.opts
        }, f"{line}: no such option"
        if "..." in words or line in inline(page):  # the text may name a command without all that it takes
            continue
        given = known[words[1]].make_context(words[1], words[2:]).params
        assert {stage.split("@")[0] for stage in given.get("stages") or ()} <= set(GRAPH), f"{line}: no such stage"


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
    """Whether a name such as polygrain.x.y is a module, or something that a module defines or imports."""
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
        if dotted := re.match(r"((?:stages|pipeline|benchmarks)(?:\.\w+)+)(?:\(|$)", code):
            assert defines(dotted[1]), f"{code}: no such module or name"
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
    labels = set(re.findall(r"^\((.+)\)=$", text, re.M))
    return labels | {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links__lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", BLOCK.sub("", page.read_text())):
        file, _, anchor = target.partition("#")
        if re.match(r"https?:", target):
            continue
        place = (page.parent / file).resolve() if file else page
        if place.parent == ROOT / "docs/figures":
            place = place.with_suffix(".py")  # what draws it then
        assert place.exists(), f"{target}: no such file"
        assert not anchor or anchor in anchors(place), f"{target}: no such heading"


def test_readme__is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 135


def test_cluster__files_to_copy_are_what_they_say() -> None:
    """No cluster is here: a shell can read the scripts, and the two objects of Kubernetes belong together."""
    found = [block for block in blocks(ROOT / "docs/howto/cluster.md") if block.kind in ("sh", "yaml")]
    assert [block.kind for block in found] == ["sh", "sh", "yaml"]
    for block in found[:2]:
        subprocess.run(["sh", "-n"], input=block.code, text=True, check=True)
    service, job = YAML(typ="safe").load_all(found[2].code)
    pod = job["spec"]["template"]["spec"]
    assert service["metadata"]["name"] == pod["subdomain"] == service["spec"]["selector"]["job-name"]
    values = {entry["name"]: entry["value"] for entry in pod["containers"][0]["env"]}
    assert int(values["NODES"]) == job["spec"]["completions"] == job["spec"]["parallelism"]
    assert int(values["GPUS"]) == pod["containers"][0]["resources"]["limits"]["nvidia.com/gpu"]


@pytest.mark.parametrize(("section", "model"), models().items())
def test_params__every_key_has_a_description(section: str, model: type[BaseModel]) -> None:
    schema = model.model_json_schema()
    for owner, part in {section: schema, **schema.get("$defs", {})}.items():
        missing = [key for key, value in part["properties"].items() if not ({"description", "$ref"} & set(value))]
        assert not missing, f"{owner}: give these fields a Field(description=...)"
