"""Printed results by one command: what it says beforehand, what it fetches, and whole runs on small copies."""

import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import timm
from ruamel.yaml import YAML
from safetensors.torch import save_file

from polygrain.app import papers
from tests.helpers import layouts
from tests.helpers.project import ENVIRONMENT, copy_project
from tests.test_profiles import composed


def values(study: papers.Study) -> list[dict]:
    return [composed(profile) for profile in study.profiles]


def test_find__an_unknown_study_lists_those_known() -> None:
    assert papers.find("gsp-fig5") is papers.STUDIES["gsp-fig5"]
    with pytest.raises(ValueError, match="'fig5'; known: gsp-fig3b, "):
        papers.find("fig5")


@pytest.mark.parametrize(
    ("name", "work", "taken"),
    [
        # 2 runs, 3 repeats: 15 validations of 250 steps without a gain, at most 100,000 steps
        ("gsp-fig5", (24_000, 600_000), "about 8 minutes to about 3.3 hours on one GPU"),
        ("tll-dino", (4 * 4199,) * 2, "about 3 minutes on one GPU"),
        ("grappa-encoder", (11_788,) * 2, "about 2 minutes on one GPU"),
    ],
)
def test_time__is_the_work_times_a_guess_and_says_so(name: str, work: tuple, taken: str) -> None:
    study = papers.find(name)
    assert study.work(values(study)[0]) == work
    said = papers.time(study, values(study))
    assert said.startswith(f"{work[0]:,} ") and taken in said and said.endswith("not timed")


def test_steps__count_the_classifier_that_the_collage_starts_from() -> None:
    collage = composed("gsp-cifar-distilled")
    assert papers.steps(collage) == (200 * 50_000 // 128 + 6 * 16 * 450, 200 * 50_000 // 128 + 6 * 100_000)


def test_profiles__fig_3b_has_runs_of_the_collage_and_the_same_values() -> None:
    few, all_ = composed("gsp-cifar-fig3b"), composed("gsp-cifar-collage")
    assert few["gsp_runs"].items() <= all_["gsp_runs"].items() and len(few["gsp_runs"]) == 8
    assert few["gsp_folds"] == all_["gsp_folds"] and few["gsp_collages"] == all_["gsp_collages"]


def test_fetch__brings_what_is_missing_once_and_nothing_else(tmp_path: Path, monkeypatch) -> None:
    calls = []

    def bring(name: str, root: Path) -> None:
        calls.append((name, root))
        layouts.cifar(root, 1, "100")

    monkeypatch.setattr(papers.load, "fetch", bring)
    sources = {"a": "cifar100_super", "b": "cifar100_known", "c": "digits"}
    given = {"tasks": {name: {"source": source} for name, source in sources.items()}}
    given |= {"paths": {"a": "../raw", "b": "../raw", "c": "x"}}
    (tmp_path / "profile").mkdir()
    papers.fetch(tmp_path / "profile", given | {"tll": {}})
    assert calls == [("cifar100_super", tmp_path / "raw")]


def test_fetch__totally_looks_like_is_laid_out_by_hand(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="tll is missing; it wants the images of https://"):
        papers.fetch(tmp_path, {"tasks": {}, "tll": {"a": {"path": "tll"}}})


def test_beside__ours_the_print_and_the_difference(tmp_path: Path) -> None:
    folder = tmp_path / "mrt-cub/data/evaluation/encoder"
    folder.mkdir(parents=True)
    (folder / "metrics.json").write_text(json.dumps({"cub": {"r_precision": 0.34, "map_at_r": 0.22}}))
    said = papers.beside(papers.find("grappa-encoder"), tmp_path / "mrt-cub", composed("mrt-cub")).splitlines()
    assert said[0].split() == ["mrt-cub", "ours", "printed", "differs"]
    assert said[1].split() == ["encoder,", "cub,", "r_precision", "34.00", "33.60", "+0.40"]
    assert said[2].split() == ["encoder,", "cub,", "map_at_r", "22.00", "22.90", "-0.90"]


def test_beside__what_is_not_printed_is_a_dash(tmp_path: Path) -> None:
    study = papers.find("gsp-fig5")._replace(beside=lambda profile, values: iter([("a", 1.0, math.nan)]))
    assert papers.beside(study, tmp_path, {}).splitlines()[1].split() == ["a", "1.00", "-", "-"]


def small_cifar(made: dict, root: Path) -> None:
    for version in ("10", "100"):
        if not (raw := root / f"data/raw/cifar{version}").exists():
            layouts.cifar(raw, {"10": 2, "100": 4}[version], version)
    made["images"]["published_counts"] = False
    made["gsp_folds"]["stopping"] |= {"every": 2, "patience": 1, "longest": 2}
    made["gsp_trainings"] = {name: item for name, item in made["gsp_trainings"].items() if not item["repeat"]}
    made.get("gsp_classifier", {}).update({"epochs": 1, "warmup": 0})
    made["gsp_ensemble"]["splits"] = 5


def small_cub(made: dict, root: Path) -> None:
    layouts.WRITERS["cub"](root / "data/raw/cub", 4)
    made["images"] |= {"side": 48, "published_counts": False}
    made["encoder"] |= {"source": "folder", "path": "../../encoders/vit48", "architecture": None, "side": None}
    made["encoder"]["resize"] = 48


def small_tll(made: dict, root: Path) -> None:
    """Twelve pairs and the network with weights of its own: nothing may be fetched."""
    raw, names = root / "data/raw/tll", [f"{i:05d}.jpg" for i in range(1, 13)]
    for side in ("left", "right"):
        for i, name in enumerate(names):
            layouts.paint(raw / side / name, i, i, side)
    (raw / "TLL_obj.csv").write_text("".join([",TLL_obj\n", *(f"{i},{name}\n" for i, name in enumerate(names))]))
    save_file(timm.create_model("vit_small_patch16_224.dino").state_dict(), root / "dino.safetensors")
    made["tll"]["deits16"]["weights"] = "../../dino.safetensors"
    made["tll_pca"] |= {"components": 4, "runs": 2}
    made["tll_adaptation"] |= {"hidden": 8, "steps": 2}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "shrink", "shown"),
    [
        ("gsp-fig3b", small_cifar, ["c2-gap, MAP@R", "pnca-gsp, MAP@R"]),
        ("gsp-fig5", small_cifar, ["pnca-gsp, MAP by cosine"]),
        ("tll-dino", small_tll, ["concatenated, aR@1, last step", "sigma_15, aR@1, best step"]),
        ("grappa-encoder", small_cub, ["encoder, cub, r_precision"]),
    ],
)
def test_papers__one_command_from_small_copies_to_the_print(
    name: str, shrink: Callable, shown: list[str], tmp_path: Path
) -> None:
    copy_project(tmp_path)
    # The copies have other checksums than the archives.
    with (tmp_path / "polygrain/sources/datasets/readers.py").open("a") as code:
        code.write("\nimport torchvision.datasets.cifar as t\n\nt.check_integrity = lambda *_: True\n")
    for profile in papers.find(name).profiles:
        made = json.loads(json.dumps(composed(profile)))
        shrink(made, tmp_path)
        (tmp_path / "profiles" / profile).mkdir(parents=True)
        with (tmp_path / "profiles" / profile / "values.yaml").open("w") as stream:
            YAML(typ="safe").dump(made, stream)
    program = [sys.executable, "-m", "polygrain", "papers", name]
    done = subprocess.run(program, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    for line in shown:
        assert f"\n{line}" in done.stdout
    assert "by arithmetic" in done.stdout
