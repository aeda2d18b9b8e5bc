"""The doorway to work: wrong values are named, folders fit the lists, listings are new, whatever command asks."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from typer.testing import CliRunner

from pipeline import graph, run
from pipeline.prepare import check, composed, ready
from polygrain.cli.main import app
from polygrain.config.compose import read_params
from tests.helpers import toy

ROOT = Path(__file__).parents[2]


@pytest.fixture
def values():
    return read_params(ROOT / "params.yaml")


def write(tmp_path, values):
    for name in ("versions.yaml", "encoders", "dvc.yaml"):
        if not (tmp_path / name).exists():
            (tmp_path / name).symlink_to(ROOT / name)
    with (tmp_path / "params.yaml").open("w") as stream:
        YAML().dump(values, stream)
    return tmp_path / "params.yaml"


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("adaptor.epochs", 0, r"adaptor.epochs: .*greater than or equal to 1 \(got 0\)"),
        ("adaptor.learning_rte", 0.1, "adaptor.learning_rte: is not a known key: remove it"),
        ("tasks.digits.source", "web", "tasks.digits.source: .*'remote', 'splits', 'tars'"),
        ("granularities.k128", "adaptor/k17", "granularities.k128 is 'adaptor/k17'; known here: k128: pseudo_labels"),
        ("paths.digits", "no/where", "paths.digits: no/where does not exist"),
        ("paths.digits", "it's", "paths.digits: it's has a quote"),
        ("encoder.resize", 64, "images.side is 48 and encoder.resize is 64: .*same value"),
        ("gsp_runs.pnca-gap.images", "images/cub", "gsp_runs.pnca-gap.images is 'images/cub'; known here: images"),
        ("gsp_folds.protocol.folds", 1, "gsp_folds.protocol: .*folds is 1 for fair"),
    ],
)
def test_check__names_key_value_and_what_is_allowed(tmp_path, values, key, value, message):
    *sections, last = key.split(".")
    section = values
    for name in sections:
        section = section[name]
    section[last] = value
    with pytest.raises(ValueError, match=message):
        check(write(tmp_path, values))


def test_check__names_what_is_missing_and_all_of_it(tmp_path, values):
    del values["adaptor"]["gamma"], values["knn_graph"]["neighbours"]
    with pytest.raises(ValueError, match=r"(?s)2 wrong .*adaptor.gamma: is missing.*knn_graph.neighbours: is missing"):
        check(write(tmp_path, values))


def test_check__what_was_right_is_looked_at_again_where_something_changes(tmp_path, values):
    """Values, and whether the files that they name are here."""
    file = write(tmp_path, values)
    for _ in range(2):
        check(file, keep=True)  # those that ship are right
    values["tasks"]["digits"], values["paths"]["digits"] = {"source": "folder"}, "shoes"
    (tmp_path / "shoes").mkdir()
    check(write(tmp_path, values), keep=True)
    (tmp_path / "shoes").rmdir()
    with pytest.raises(ValueError, match="shoes does not exist"):
        check(file, keep=True)
    (tmp_path / "shoes").mkdir()
    values["adaptor"]["epochs"] = 0
    with pytest.raises(ValueError, match="1 wrong"):
        check(write(tmp_path, values), keep=True)


def test_check__a_profile_without_a_folder_yet_sees_the_files_above_it(tmp_path, values, monkeypatch):
    """As `--dry` finds it."""
    monkeypatch.setattr("pipeline.prepare.wrong_values", lambda *_: [])
    write(tmp_path, values)
    values["paths"] = {name: f"../../{path}" for name, path in values["paths"].items()}
    values["versions"], values["encoder"]["path"] = "../../versions.yaml", "../../encoders/vit48"
    for section in (values["gsp_folds"]["backbone"], values["tll"]["analogies"]):
        section["path"] = values["versions"]
    check(tmp_path / "profiles/mrt/params.yaml", values=values)


def test_check__missing_data_are_named_before_any_stage_is_loaded(tmp_path, values, monkeypatch):
    monkeypatch.setattr("pipeline.prepare.wrong_values", lambda *_: pytest.fail("stages were loaded"))
    values["tasks"] = {name: {"source": name} for name in ("cub", "cars")}
    values["paths"] = {name: f"raw/{name}" for name in values["tasks"]}
    for folder in ("profiles/mrt", "profiles/grappa"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "profiles/grappa/mrt.yaml").write_text("mrt: {}\n")
    with pytest.raises(ValueError, match=rf"datasets {tmp_path}/profiles/mrt/raw cub\n.*docs/howto/papers\.md"):
        check(write(tmp_path / "profiles/mrt", values))
    values |= {"tasks": {"cub": {"source": "folder"}}, "paths": {"cub": "raw/cub"}}
    with pytest.raises(ValueError, match=r"raw/cub does not exist$"):
        check(write(tmp_path, values))


def test_ready__composes_a_profile_before_it_checks(tmp_path, values):
    toy.found(tmp_path / "toy", {})
    tmp_path /= "toy"
    write(tmp_path, values)
    (tmp_path / "stages").symlink_to(ROOT / "stages")
    profile = tmp_path / "profiles/mine"
    for item in ("k512", "k64", "k7.partial"):
        (profile / "data/adaptor" / item).mkdir(parents=True)
    (profile / "values.yaml").write_text("adaptor: {epochs: 5}\n")
    assert ready("mine", tmp_path) == profile
    assert read_params(profile / "params.yaml")["adaptor"]["epochs"] == 5
    assert (profile / "data/fusion").is_dir()  # the stage `choice` reads it, even where nothing is fused
    # What the list no longer names would be part of the folder that fusions depend on.
    assert sorted(path.name for path in (profile / "data/adaptor").iterdir()) == ["k512", "k7.partial"]
    (profile / "values.yaml").write_text("adaptor: {epoch: 5}\n")
    with pytest.raises(ValueError, match=r"change .*values.yaml.* 1 wrong .*\n  adaptor.epoch: is not a known"):
        ready("mine", tmp_path)


def test_ready__wrong_places_are_named(tmp_path, refusal):
    folder = toy.make(tmp_path / "toy", first=1, second=1)
    for command in ("run", "flow", "fetch", "share"):
        assert "unknown profile 'large'" in refusal(folder, command, "--profile", "large")
    (folder / "pipeline").mkdir()
    assert "has a polygrain of its own" in refusal(folder, "worker")


def test_ready__a_list_of_paths_in_use_is_deleted_where_it_is_torn_or_nobody_uses_them(tmp_path):
    folder = toy.make(tmp_path / "toy", first=1, second=1)
    graph.load(folder)
    file = folder / ".dvc/tmp/rwlock"
    with subprocess.Popen(["true"]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)  # a zombie from here on
        for text in ('{"read": {"/a": [', json.dumps({"/a": {"write": {"pid": ended.pid, "cmd": "dvc repro"}}})):
            file.write_text(text)
            ready(None, folder)
            assert not file.exists()
    file.write_text(json.dumps({"/a": {"write": {"pid": os.getpid(), "cmd": "dvc repro"}}}))
    ready(None, folder)
    assert file.exists()


@pytest.fixture
def listed(tmp_path) -> Path:
    """A repository where a stage reads the folder of a list, with a profile in which that list is empty."""
    folder = toy.found(
        tmp_path / "owner",
        {
            "params.yaml": "gsp_collages: {large: gsp_collage/large}\nerrors: 1\n",
            "dvc.yaml": """\
stages:
  gsp_collage:
    foreach: ${gsp_collages}
    do: {cmd: "mkdir -p data/${item}; echo ${key} > data/${item}/text", outs: ["data/${item}"]}
  choice:
    cmd: mkdir -p data/choice; echo ${errors}; ls data/gsp_collage > data/choice/text || true
    params: [errors]
    deps: [data/gsp_collage]
    outs: [data/choice]
  seeds: {cmd: "mkdir data/seeds; touch data/seeds/text", outs: [data/seeds], meta: {serves: true}}
""",
        },
    )
    (folder / ".gitignore").write_text("/data\n/profiles/*/data\n")
    (folder / "profiles/mine").mkdir(parents=True)
    (folder / "profiles/mine/values.yaml").write_text("gsp_collages: {}\n")
    toy.commit(folder)
    return folder


def test_run__in_the_folder_of_a_profile_means_that_profile(listed, monkeypatch):
    (listed / "profiles/mine/data").mkdir()
    for folder, stages in {"profiles/mine": 1, "profiles/mine/data": 1}.items():
        monkeypatch.chdir(listed / folder)
        assert f"{stages} of {stages} stage" in CliRunner().invoke(app, ["run", "--dry"]).output
    monkeypatch.chdir(listed)
    dry = ["run", "--dry"]
    assert "only profile here, --profile mine" in (said := CliRunner().invoke(app, dry).output) and "1 of 1" in said
    assert "2 of 2 stages" in CliRunner().invoke(app, [*dry, "--profile", ""]).output
    (listed / "dvc.lock").write_text("schema: '2.0'\nstages: {}\n")  # the project's own graph has run
    assert "2 of 2 stages" in CliRunner().invoke(app, dry).output
    assert "unknown profile 'other'" in str(CliRunner().invoke(app, ["run", "--profile", "other"]).exception)


@pytest.mark.slow
def test_share__a_profile_with_an_empty_list_comes_to_clones_that_never_ran(listed, tmp_path):
    """By fetch; and by plain DVC from a committed dvc.lock, after which a run has nothing to do."""
    words = ["--profile", "mine", "--remote", str(tmp_path / "remote")]
    toy.polygrain(listed, "run", *words[:2])
    toy.polygrain(listed, "share", *words)
    clone = toy.clone(listed, "fetched")
    assert "The only stage is up to date" in toy.polygrain(clone, "fetch", *words)
    assert (clone / "profiles/mine/data/choice/text").exists()

    toy.commit(listed)
    clone = toy.clone(listed, "pulled")
    toy.run(clone, "dvc", "remote", "add", "--default", "team", words[-1])
    profile = clone / "profiles/mine"
    toy.run(profile, "dvc", "pull", "dvc.yaml")  # the root's own graph has never run
    assert toy.run(profile, "dvc", "status", "dvc.yaml") == "Data and pipelines are up to date.\n"
    assert "Running stage" not in toy.run(profile, "dvc", "repro")
    assert toy.polygrain(clone, "run", "--profile", "mine").startswith("0 of 1 stage to do\n")
    assert [path.name for path in (profile / "data").iterdir()] == ["choice"]


def test_run__a_branch_that_is_turned_off_leaves_no_results(listed):
    (listed / "profiles/mine/data/gsp_collage/large").mkdir(parents=True)
    ready("mine", listed)
    assert not (listed / "profiles/mine/data/gsp_collage").exists()


def test_run__dry_leaves_every_file_as_it_was(listed, monkeypatch, capsys):
    monkeypatch.chdir(listed)
    (listed / "data/gsp_collage/unlisted").mkdir(parents=True)
    ready(None)  # DVC writes to its own folders
    used = listed / ".dvc/tmp/rwlock"
    used.parent.mkdir(exist_ok=True)
    used.write_text('{"write": {"/a": {"pid": 4194305, "cmd": "dvc repro"}}, "read": {}}')  # no process has this number

    def state() -> dict[Path, int]:
        files = [path for path in listed.rglob("*") if not {".git", "tmp"} & {*path.parts}]
        return {path: path.stat().st_mtime_ns for path in files}

    before = state()
    assert run.main("mine", dry=True) == run.main(None, dry=True) == 0
    assert "1 of 1 stage to do\n  never run here: choice" in capsys.readouterr().out
    assert state() == before and "4194305" in used.read_text()


def test_run__dry_reads_the_values_that_a_run_would_compose(listed, monkeypatch, capsys):
    """Those of an experiment are named, and stay; a profile of a paper has no folder before it runs."""
    (listed / "profiles/paper").mkdir()
    (listed / "profiles/paper/family.yaml").write_text("printed: {gsp_collages: {}}\n")
    monkeypatch.chdir(listed)
    assert run.main("printed", dry=True) == 0 and not (listed / "profiles/printed").exists()
    assert "1 of 1 stage to do\n  never run here: choice" in capsys.readouterr().out
    profile = listed / "profiles/mine"
    ready("mine")
    toy.run(profile, "dvc", "repro", "-q")
    file = profile / "params.yaml"
    file.write_text(text := f"teacher: {{look: {{}}}}\n{file.read_text()}".replace("errors: 1", "errors: 48"))
    for errors, todo in ((1, "0 of 1"), (3, "\n  its command has changed: choice\n  errors 1 -> 3: choice\n")):
        (profile / "values.yaml").write_text(f"gsp_collages: {{}}\nerrors: {errors}\n")
        assert run.main("mine", dry=True) == 0 and file.read_text() == text
        said = capsys.readouterr()
        assert todo in said.out
        assert said.err.endswith(f"mine/values.yaml makes: teacher -> gone, errors 48 -> {errors}\n")


@pytest.mark.parametrize("write", [True, False])
def test_composed__beside_a_run_nothing_changes(listed, write):
    """Neither values nor the results that the run may be reading; with the same values a command goes on."""
    ready("mine", listed)
    profile = listed / "profiles/mine"
    (profile / "data/gsp_collage/large").mkdir(parents=True)
    where, holder = str(profile.resolve() / "data/choice"), {"pid": os.getpid(), "cmd": "dvc repro"}
    (listed / ".dvc/tmp/rwlock").write_text(json.dumps({"read": {}, "write": {where: holder}}))
    before = (profile / "params.yaml").read_bytes()
    assert composed("mine", listed, write=write) == (profile, {}) and (profile / "data/gsp_collage/large").is_dir()
    ready(None, listed)  # another graph of the clone
    for text, file in (
        ("gsp_collages: {small: gsp_collage/small}\n", "values.yaml"),
        ("stages: {}\n", "../../dvc.yaml"),
    ):
        (profile / file).write_text(text)
        with pytest.raises(ValueError, match=rf"another run is at work here.*PID {os.getpid()}\): dvc repro$"):
            composed("mine", listed, write=write)
    assert (profile / "params.yaml").read_bytes() == before and (profile / "data/gsp_collage/large").is_dir()
    assert (profile / "dvc.yaml").read_text() != "stages: {}\n"
