"""What README, CONTRIBUTING and docs/ say is held against the project: commands, modules, paths, links, values."""

import importlib.util
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from typer.main import get_command

from docs.extensions import api, full_names
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
        if place.is_relative_to(ROOT / "docs/reference/api"):
            continue  # pages made from the sources when the docs are built
        if place.parent == ROOT / "docs/figures":
            place = place.with_suffix(".py")  # what draws it then
        assert place.exists(), f"{target}: no such file"
        assert not anchor or anchor in anchors(place), f"{target}: no such heading"


def test_readme__is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def test_params_reference__covers_every_key() -> None:
    from docs.extensions import params, sections

    own, shared = sections.tables()
    rows = [row for table in [*own, *shared] for row in table.rows]
    shown = {place for row in rows for place in row.values}
    openings = {f"{table.title}.{row.key}".removeprefix("Lists.") for table in own for row in table.rows}

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
    (adaptor,) = [params.markdown(table) for table in own if table.title == "adaptor"]
    assert f"| `gamma` | `{values['adaptor']['gamma']}` | Number > 0" in adaptor


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


def test_params_reference__describes_every_key() -> None:
    from docs.extensions import sections

    own, shared = sections.tables()
    silent = [f"{table.title}.{row.key}" for table in [*own, *shared] for row in table.rows if not row.text]
    assert not silent, "give these fields a Field(description=...), or their class a docstring"
    assert all(table.text for table in [*own, *shared])


def test_api__every_room_can_be_written() -> None:
    """From its text alone: a description that is put together, say, is none that can be read."""
    classes = full_names.all_classes()
    assert all(api.page(title, folder, classes) for _, title, folder in api.rooms()) and api.public(classes)
