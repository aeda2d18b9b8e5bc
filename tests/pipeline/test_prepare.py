"""Before any work: values are checked, folders and listings brought in line, and a dry run changes nothing."""

import pytest
from ruamel.yaml import YAML

from pipeline.prepare import check, ready, tidy
from polygrain.config.compose import read_params
from tests.helpers.project import ROOT, edit, new_project, repro


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


def test_check__the_params_that_ship_are_right(tmp_path, values):
    check(write(tmp_path, values))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("adaptor.epochs", 0, r"adaptor.epochs: .*greater than or equal to 1 \(got 0\)"),
        ("adaptor.epochs", "six", r"adaptor.epochs: .*valid integer \(got 'six'\)"),
        ("adaptor.learning_rte", 0.1, "adaptor.learning_rte: is not a known key"),
        ("features.dtype", "float64", "features.dtype: .*'float16' or 'float32'"),
        ("fusion.neighbour.neighbours", -1, r"fusion.neighbour.neighbours: .*\(got -1\)"),
        ("tasks.digits.source", "web", "tasks.digits.source: .*'splits', 'tars', 'parquet', 'remote'"),
        ("granularities.k128", "adaptor/k17", "granularities.k128 is 'adaptor/k17'; known here: k128: adaptor"),
        ("granularities.sixteen", "adaptor/x", "granularities.sixteen.*pattern"),
        ("models.k999", "adaptor/k999", "models.k999 is 'adaptor/k999'"),
        ("baselines.lda", "images", "baselines.lda.*'one_set', 'many_sets', 'tldr' or 'linear'"),
        ("seed", -3, r"seed: .*\(got -3\)"),
        ("sead", 3, "sead: is not a known key"),
        ("tasks.digits.path", "no/where", "tasks.digits.path: no/where does not exist"),
        ("tasks.digits.path", "it's", "tasks.digits.path: it's has a quote"),
        ("encoder.path", "data/raw/encoder", "encoder.path: data/raw/encoder does not exist"),
        ("encoder.resize", 64, "images.side is 48 and encoder.resize is 64: .*same value"),
        ("gsp_runs.c2-gap.images", "images/cub", "gsp_runs.c2-gap.images is 'images/cub'; known here: gsp_coll"),
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


def test_check__what_a_stage_makes_need_not_be_there(tmp_path, values):
    values["encoder"]["path"] = "data/mpcl_encoder/heads4"
    check(write(tmp_path, values))


def test_ready__composes_a_profile_before_it_checks(tmp_path, values):
    write(tmp_path, values)
    for name in (".dvc", "stages"):
        (tmp_path / name).mkdir()
    profile = tmp_path / "profiles/mine"
    for item in ("k512", "k64", "k7.partial"):
        (profile / "data/adaptor" / item).mkdir(parents=True)
    (profile / "values.yaml").write_text("adaptor: {epochs: 5}\n")
    ready("mine", tmp_path)
    assert read_params(profile / "params.yaml")["adaptor"]["epochs"] == 5
    assert (profile / "data/distillation").is_dir()  # the stage `choice` reads it, even where nothing is distilled
    # What the list no longer names would be part of the folder that fusions depend on.
    assert sorted(path.name for path in (profile / "data/adaptor").iterdir()) == ["k512", "k7.partial"]
    (profile / "values.yaml").write_text("adaptor: {epoch: 5}\n")
    with pytest.raises(ValueError, match=r"change values.yaml beside it.* 1 wrong .*\n  adaptor.epoch: is not a known"):
        ready("mine", tmp_path)


@pytest.mark.slow
def test_tidy__a_graph_runs_with_all_of_its_branches_off(tmp_path):
    new_project(tmp_path)

    def change(values):
        values |= {name: {} for name in ("granularities", "fusions", "distillations")}
        values["models"] = {"encoder": "encoder", "chosen": "choice"}

    edit(tmp_path, change)
    check(tmp_path / "params.yaml")
    tidy(tmp_path)
    ran = repro(tmp_path, "report")
    assert ran[-1] == "report" and "choice" in ran and not any("@average" in stage for stage in ran)


def test_ready__a_dry_run_leaves_every_file(tmp_path, values):
    write(tmp_path, values)
    for name in (".dvc/tmp", "stages", "data/adaptor/k64"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / ".dvc/tmp/rwlock").write_text("torn")
    before = sorted(tmp_path.rglob("*"))
    assert ready(None, tmp_path, write=False) == tmp_path
    assert sorted(tmp_path.rglob("*")) == before


def test_ready__a_fetch_has_the_folders_of_empty_lists_and_lists_no_store(tmp_path, values, monkeypatch):
    values |= {"distillations": {}, "models": {"encoder": "encoder"}}
    write(tmp_path, values)
    for name in (".dvc", "stages"):
        (tmp_path / name).mkdir()
    listed = []
    monkeypatch.setattr("polygrain.config.remotes.renew", lambda folder: listed.append(folder) or [])
    ready(None, tmp_path, computes=False)
    assert (tmp_path / "data/distillation").is_dir() and not listed
    ready(None, tmp_path)
    assert listed == [tmp_path]
