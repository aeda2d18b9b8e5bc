"""What README, CONTRIBUTING and docs/ name must exist: commands, modules, paths, links."""

import importlib.util
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from typer.main import get_command

from docs.extensions import state
from docs.figures import gains
from polygrain.cli.main import app
from polygrain.config.compose import listed
from tests.helpers.docs_text import BLOCK, PAGES, ROOT, blocks, commands, inline, name

GRAPH = YAML(typ="safe").load((ROOT / "dvc.yaml").read_text())["stages"]
MADE = {out.split("/")[1] for stage in GRAPH.values() for out in stage.get("do", stage)["outs"]}
FOLDERS = ("polygrain", "stages", "pipeline", "profiles", "docs", "benchmarks", "encoders", "tests", "data")
# Profiles that a command of some page makes, and the word for any.
PROFILES = {word for page in PAGES for line in commands(page) for word in re.findall(r"polygrain new (\S+)", line)}
PROFILES |= {"NAME", *listed(ROOT / "profiles")}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands__make_and_profiles_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z][\w-]*)(?=.*?:)", (ROOT / "Makefile").read_text(), re.M))
    for line in commands(page):
        for target in re.findall(r"^(?:\w+=\S+ )*make ([\w-]+)", line):
            assert target in targets, f"{line}: no such target"
        for profile in re.findall(r"--profile (\S+)", line):
            assert profile in PROFILES, f"{line}: no such profile"
        for stage in re.findall(r"dvc repro (?:--?\S+ )*(?!profiles)(\w\S*)", line):
            assert stage.split("@")[0] in GRAPH, f"{line}: no such stage"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands__polygrain_takes_their_words(page: Path) -> None:
    known = get_command(app).commands
    for line in commands(page):
        words = shlex.split(line.rpartition("&&")[2])
        if not words or Path(words[0]).name != "polygrain" or words[1].startswith(("...", "--")):
            continue
        assert words[1] in known, f"{line}: no such command"
        options = {option for parameter in known[words[1]].params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= options, f"{line}: no such option"
        if "..." in words or line in inline(page):  # the text may name a command without all that it takes
            continue
        given = known[words[1]].make_context(words[1], words[2:]).params
        assert {stage.split("@")[0] for stage in given.get("stages") or ()} <= set(GRAPH), f"{line}: no such stage"


def is_module(dotted: str) -> bool:
    if dotted.split(".")[0] not in FOLDERS:
        return importlib.util.find_spec(dotted) is not None
    return ROOT.joinpath(*dotted.split(".")).is_dir() or ROOT.joinpath(*dotted.split(".")).with_suffix(".py").exists()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_paths__named_in_the_text_exist(page: Path) -> None:
    for line in commands(page) + inline(page):
        assert all(map(is_module, re.findall(r"python -m ([\w.]+\w)", line))), f"{line}: no such module"
        assert all((ROOT / program).exists() for program in re.findall(r"python ([\w/]+\.py)", line)), line
    for code in inline(page):
        top, *rest = code.split("/")
        if top not in FOLDERS or not rest or re.search(r"[<>{}$=\s:]|NAME|\bmine\b", code):
            continue
        if "data" in (top, *rest[1:2]):
            made = rest[rest.index("data") + 1 :] if "data" in rest else rest
            assert [*made, ""][0] in {*MADE, "raw", ""}, f"{code}: no stage writes it"
        elif not (top == "profiles" and rest[0] in PROFILES) and not code.startswith("docs/_build"):
            assert list(ROOT.glob(code.rstrip("/"))), f"{code}: no such file"


def test_extension_points__are_in_the_tree() -> None:
    """A path exists, and a word behind it stands in that file; <...> stands for any name."""
    part = (ROOT / "CONTRIBUTING.md").read_text().partition("| what | places |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| ([^|]+) \| (.+) \|$", part, re.M)
    assert len(rows) > 10
    for what, places in rows:
        for path, word in re.findall(r"`([\w./<>-]+\.(?:py|yaml|csv|md|j2|gitkeep))`(?: `(\w+)`)?", places):
            found = list(ROOT.glob(re.sub(r"<\w+>", "*", path)))
            assert found, f"{what}: {path} is not there"
            assert not word or re.search(rf"\b{word}\b", found[0].read_text()), f"{what}: no {word} in {path}"


def anchors(page: Path) -> set[str]:
    text = page.read_text()
    titles = re.findall(r"^#+ (.+)$", BLOCK.sub("", text), re.M)
    labels = set(re.findall(r"^\((.+)\)=$", text, re.M))
    return labels | {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links__lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", BLOCK.sub("", page.read_text())):
        file, _, anchor = target.partition("#")
        place = (page.parent / file).resolve() if file else page
        if place.parent == ROOT / "docs/figures":
            place = place.with_suffix(".py")  # what draws it when the site is built
        assert place.exists(), f"{target}: no such file"
        assert not anchor or anchor in anchors(place), f"{target}: no such heading"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_files_to_copy__can_be_read(page: Path) -> None:
    for block in blocks(page):
        if block.kind == "sh":
            subprocess.run(["sh", "-n"], input=block.code, text=True, check=True)
        if block.kind == "yaml":
            assert list(YAML().load_all(block.code))


def test_state__has_every_table_and_its_commands_exist(tmp_path: Path) -> None:
    rows = state.read("docs/faithful/state.csv")
    assert {row["state"] for row in rows} <= set(state.STATES)
    assert all(bool(row["command"]) == (row["state"] != "missing") for row in rows)
    listed = {(row["paper"].split(",")[0], row["element"].removeprefix("Table ")) for row in rows}
    assert set(state.counts()["printed"]) <= listed
    page = tmp_path / "state.md"
    page.write_text(state.text())
    test_commands__make_and_profiles_exist(page)
    test_commands__polygrain_takes_their_words(page)
    test_paths__named_in_the_text_exist(page)


def test_gains__are_of_the_printed_table() -> None:
    found = gains.gains()
    assert len(found) == 48 and found["cub", "c2", "512"] == pytest.approx(100 * (27.12 / 25.95 - 1))


def test_results__are_one_short_page() -> None:
    text = (ROOT / "docs/results.md").read_text()
    assert len(text.splitlines()) <= 200 and len(re.findall(r"^\|[-:| ]+\|$", text, re.M)) <= 6


def test_readme__is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 135
