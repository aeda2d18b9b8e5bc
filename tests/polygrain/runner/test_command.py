import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from dvc.utils import dict_sha256
from ruamel.yaml import YAML

from polygrain.config import compose
from polygrain.runner.command import check, check_once, dropped, read_params, stamp

ROOT = Path(__file__).parents[3]


@pytest.fixture
def values():
    return YAML(typ="safe").load((ROOT / "params.yaml").read_text())


def write(tmp_path, values):
    (tmp_path / "requirements.lock").mkdir(parents=True, exist_ok=True)
    if not (tmp_path / "encoders").exists():
        (tmp_path / "encoders").symlink_to(ROOT / "encoders")
    file = tmp_path / "params.yaml"
    with file.open("w") as stream:
        YAML().dump(values, stream)
    return file


def test_check__the_params_that_ship_are_right(tmp_path, values):
    check(write(tmp_path, values))


@pytest.mark.parametrize(
    ("where", "value", "message"),
    [
        (("adaptor", "epochs"), 0, r"adaptor.epochs: .*greater than or equal to 1 \(met 0\)"),
        (("adaptor", "epochs"), "six", r"adaptor.epochs: .*valid integer \(met 'six'\)"),
        (("adaptor", "learning_rte"), 0.1, r"adaptor.learning_rte: is not a known key"),
        (("features", "dtype"), "float64", r"features.dtype: .*'float16' or 'float32' \(met 'float64'\)"),
        (("fusion", "neighbour", "neighbours"), -1, r"fusion.neighbour.neighbours: .*\(met -1\)"),
        (
            ("tasks", "digits", "source"),
            "web",
            r"tasks.digits.source: .*'splits', 'tars', 'parquet', 'remote', 'aircraft'",
        ),
        (("granularities", "k128"), "adaptor/k17", r"granularities.k128 is 'adaptor/k17'; known here: k128: adaptor"),
        (("granularities", "sixteen"), "adaptor/x", r"granularities.sixteen.*pattern"),
        (("models", "k999"), "adaptor/k999", r"models.k999 is 'adaptor/k999'"),
        (("models", "tldr"), "baseline/tldr", r"models.tldr is 'baseline/tldr'"),
        (("baselines", "tldr"), "images", r"baselines.tldr is 'images'; known here: .*tldr: knn_graph"),
        (("baselines", "lda"), "images", r"baselines.lda.*'one_set', 'many_sets', 'tldr' or 'linear'"),
        (("supervised_models", "x"), {"on": "birds", "how": "full"}, r"x.on is 'birds'; known here: all, digits"),
        (
            ("supervised_models", "x"),
            {"on": "all", "how": "half"},
            r"supervised_models.x.how: .*'full', 'one' or 'many'",
        ),
        (("fusion", "attention", "pooling"), "max", r"fusion.attention.pooling: .*'mean' or 'sum'"),
        (("seed",), -3, r"seed: .*\(met -3\)"),
        (("sead",), 3, r"sead: is not a known key"),
        (("tasks", "digits", "path"), "no/where", r"tasks.digits.path: no/where does not exist"),
        (("encoder", "path"), "no/weights", r"encoder.path: no/weights does not exist"),
        (("encoder", "side"), 48, r"encoder.side is 48, which the config.json of .*vit48 says itself: give null"),
        (("encoder", "kwargs"), {"depth": 2}, r"encoder.kwargs is {'depth': 2}, which the config.json .*: give {}"),
        (("encoder", "architecture"), "resnet18", r"encoder: .*architecture must be null for source: folder"),
        (("encoder", "resize"), 64, r"images.side is 48 and encoder.resize is 64: .*give both the same value"),
        (("encoder", "crop"), 64, r"encoder: .*crop 64 is larger than resize 48"),
        (("encoder", "path"), "requirements.lock", r"requirements.lock/config.json is missing or damaged"),
        (("gsp_collages", "collage", "targets"), "letters", r"gsp_collages.collage.targets is 'images/letters'; known"),
        (
            ("gsp_runs", "c2-gap", "images"),
            "images/cub",
            r"gsp_runs.c2-gap.images is 'images/cub'; known here: gsp_coll",
        ),
        (("gsp", "glyphs"), "images/glyphs", r"gsp lists 'images/glyphs', on which no run of gsp_runs trains"),
        (("gsp_runs", "c2-gap", "zero_shot"), 1.0, r"gsp_runs.c2-gap.zero_shot: .*less than 1 .met 1.0."),
        (("gsp_folds", "protocol", "folds"), 1, r"gsp_folds.protocol: .*folds is 1 for fair"),
    ],
)
def test_check__names_key_value_and_what_is_allowed(tmp_path, values, where, value, message):
    section = values
    for key in where[:-1]:
        section = section[key]
    section[where[-1]] = value
    with pytest.raises(ValueError, match=message):
        check(write(tmp_path, values))


def test_check__names_what_is_missing_and_all_of_it(tmp_path, values):
    del values["adaptor"]["gamma"], values["knn_graph"]["neighbours"]
    with pytest.raises(
        ValueError, match=r"(?s)2 wrong value.*adaptor.gamma: is missing.*knn_graph.neighbours: is missing"
    ):
        check(write(tmp_path, values))


def test_check__a_key_that_the_run_cache_does_not_see(tmp_path, values):
    values["tasks"]["size"] = values["tasks"]["digits"]
    with pytest.raises(ValueError, match=r"tasks.size: DVC's run cache does not see a key of this name"):
        check(write(tmp_path, values))


def test_dropped__is_what_the_run_cache_does_not_tell_apart():
    values = {"a": {"size": 1, "side": 2}, "b": [{"nfiles": 3}, 4], "size": {"c": 5}, "d": [[{"size": 6}]]}
    assert sorted(dropped(values)) == ["a.size", "b.nfiles", "d.size", "size"]
    for other in ({"size": 2}, {"side": 2}):
        same = dict_sha256({"b": [other]}, exclude=["size", "nfiles"]) == dict_sha256(
            {"b": [dict.fromkeys(other, 9)]}, exclude=["size", "nfiles"]
        )
        assert same == bool(dropped({"b": [other]}))


def test_check__what_a_stage_makes_need_not_be_there(tmp_path, values):
    values["encoder"]["path"] = "data/mpcl_encoder/heads4"
    check(write(tmp_path, values))
    values["encoder"]["path"] = "data/raw/encoder"
    with pytest.raises(ValueError, match=r"encoder.path: data/raw/encoder does not exist"):
        check(write(tmp_path, values))


def test_check__a_name_that_dvc_cannot_track(tmp_path, values):
    values["tasks"]["own"] = {"source": "folder", "path": "raw"}
    (tmp_path / "raw/a").mkdir(parents=True)
    (tmp_path / "raw/a/\r\u202e.png").touch()
    check(write(tmp_path, values))
    (tmp_path / "raw/a/caf\udce9.png").touch()
    with pytest.raises(
        ValueError, match=r"tasks.own.path: raw holds b'caf\\xe9.png', a name that is not UTF-8.*rename"
    ):
        check(write(tmp_path, values))


def test_check_once__checks_again_when_the_file_changes(tmp_path, values, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = write(tmp_path, values)
    check_once(file)
    check_once(file)
    values["seed"] = "x"
    write(tmp_path, values)
    with pytest.raises(ValueError, match="seed"):
        check_once(file)


@pytest.fixture
def profile(tmp_path, values):
    """A composed profile of its own beside the root's values."""
    write(tmp_path, values)
    folder = tmp_path / "profiles/mine"
    folder.mkdir(parents=True)
    (folder / "values.yaml").write_text("adaptor: {epochs: 2}\n")
    compose.renew(folder)
    return folder


def test_check__a_profile_that_is_not_the_composition(profile):
    check(profile / "params.yaml")
    (profile / "values.yaml").write_text("adaptor: {epochs: 3}\n")
    with pytest.raises(ValueError, match=r"is not what values.yaml .* renew it with `make compose PROFILE=mine`"):
        check(profile / "params.yaml")
    compose.renew(profile)
    check(profile / "params.yaml")
    with (profile / "params.yaml").open("a") as stream:
        stream.write("seed: 3\n")
    with pytest.raises(ValueError, match=r"make compose PROFILE=mine"):
        check(profile / "params.yaml")
    (profile / "params.yaml").unlink()
    with pytest.raises(ValueError, match=r"has not been composed yet: renew it with `make compose PROFILE=mine`"):
        check(profile / "params.yaml")


@pytest.mark.parametrize("changed", ["values.yaml", "../../params.yaml", "../other/values.yaml"])
def test_check_once__a_change_of_what_it_is_composed_from(profile, changed):
    (profile.parent / "other").mkdir()
    (profile.parent / "other/values.yaml").write_text("adaptor: {batch: 9}\n")
    (profile / "values.yaml").write_text("from: other\nadaptor: {epochs: 2}\n")
    compose.renew(profile)
    check_once(profile / "params.yaml")
    assert stamp(profile / "params.yaml").exists()
    file = profile / changed
    file.write_text(file.read_text().replace("epochs: 2", "epochs: 4").replace("batch: 9", "batch: 8") + "seed: 1\n")
    if changed == "../../params.yaml":
        file.write_text(file.read_text().removesuffix("seed: 1\n").replace("width: 48", "width: 24"))
    with pytest.raises(ValueError, match="make compose PROFILE=mine"):
        check_once(profile / "params.yaml")


def test_check__a_wrong_value_of_a_profile_is_to_be_mended_in_its_values(profile):
    (profile / "values.yaml").write_text("adaptor: {epochs: 0}\n")
    compose.renew(profile)
    with pytest.raises(ValueError, match=r"composed: mend values.yaml beside it\) has 1 wrong .*\n  adaptor.epochs: "):
        check(profile / "params.yaml")


def test_main__composes_before_it_checks(profile):
    (profile / "values.yaml").write_text("adaptor: {epochs: 5}\n")
    command = [sys.executable, "-m", "polygrain.runner.command", "params.yaml"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run(command, cwd=profile, env=environment, check=True)
    assert read_params(profile / "params.yaml")["adaptor"]["epochs"] == 5
    assert stamp(profile / "params.yaml").exists()
    (profile / "values.yaml").write_text("adaptor: {epoch: 5}\n")
    done = subprocess.run(command, cwd=profile, env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("error: profiles/mine/values.yaml: adaptor.epoch is not a known key; known here: ")


def test_read_params__reads_numbers_as_dvc_does(tmp_path):
    file = tmp_path / "params.yaml"
    file.write_text("a: 1e-3\nb: 012\n")
    assert read_params(file) == {"a": 0.001, "b": 12}
    file.write_text("a: [1,\n")
    with pytest.raises(ValueError, match="cannot be read as YAML"):
        read_params(file)


def test_run__a_wrong_value_ends_with_one_sentence_and_no_work(tmp_path, values):
    values["adaptor"]["epochs"] = 0
    write(tmp_path, values)
    command = [sys.executable, "-m", "stages.images", "x", "out", "--task", "digits", "--source", "digits"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env={"PYTHONPATH": str(ROOT)})
    assert done.returncode == 1
    assert "adaptor.epochs" in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


def test_check__a_branch_that_is_off_needs_no_section(tmp_path, values):
    for name in ("gsp_collages", "gsp_runs", "gsp", "gsp_studies"):
        values[name] = {}
    del values["gsp_folds"], values["gsp_study"]
    check(write(tmp_path, values))
    values["gsp_studies"] = {"tokens": "tokens"}
    with pytest.raises(ValueError, match=r"gsp_folds.backbone: is missing"):
        check(write(tmp_path, values))


STAGE = """
import atexit
from pathlib import Path
from polygrain.runner import command

def main(output: Path, *, seed: int) -> str:
    output.write_text(str(seed))
    return "written"

if __name__ == "__main__":
    atexit.register(print, "torn down")
    command.run(main, None)
"""


@pytest.mark.parametrize(("processes", "said"), [(1, ""), (2, "torn down\n")])
def test_run__a_stage_alone_ends_at_once_and_says_all(tmp_path, values, processes, said):
    """Several processes must leave their group in order; here the second one is only said to be there."""
    write(tmp_path, values)
    alone = "from polygrain.runner import agreement\nagreement.require = lambda *facts: None\n"
    (tmp_path / "toy.py").write_text(alone + STAGE)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "WORLD_SIZE": str(processes)}
    done = subprocess.run(
        [sys.executable, "toy.py", "out"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0 and done.stdout == said
    assert done.stderr.splitlines()[-1].startswith("toy: written (")
    assert (tmp_path / "out").read_text() == "0"


@pytest.mark.parametrize(("before", "mode"), [("000", 0o664), ("022", 0o644), ("077", 0o600)])
def test_run__others_cannot_change_what_a_stage_has_written(tmp_path, values, before, mode):
    """Nor can they once DVC keeps it; the group may, where the user lets it."""
    write(tmp_path, values)
    (tmp_path / "toy.py").write_text(STAGE)
    command = f"umask {before}; exec {sys.executable} toy.py out"
    subprocess.run(["sh", "-c", command], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=True)
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == mode


BORROWER = """
from pathlib import Path
from polygrain.encoder.adaptors import Attention
from polygrain.runner import command

def main(output: Path, *, attention: Attention) -> str:
    output.write_text(repr((type(attention).__name__, attention.pooling)))
    return "written"

if __name__ == "__main__":
    command.run(main, None, attention="fusion.attention")
"""


def test_run__a_stage_gets_the_value_it_borrows_from_another_section(tmp_path, values):
    values["fusion"]["attention"]["pooling"] = "sum"
    write(tmp_path, values)
    (tmp_path / "toy.py").write_text(BORROWER)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "toy.py", "out"], cwd=tmp_path, env=environment, check=True)
    assert (tmp_path / "out").read_text() == "('Attention', 'sum')"
