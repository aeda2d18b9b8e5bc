"""Two machines share a stage; the slow tests join two network namespaces, each with files of its own."""

import os
import shutil
import signal
import subprocess
import time

import numpy as np
import pytest
from ruamel.yaml import YAML
from safetensors.torch import load_file

from polygrain.encoder.model import save
from polygrain.runner import several
from polygrain.store import arrays
from tests.helpers import shared_work, streams
from tests.helpers.nodes import ROOT, carry, mirror, two_nodes
from tests.helpers.settings import criterion, reference
from tests.helpers.small import adapted, lists, write_encoder, write_images
from tests.helpers.torchrun import torchrun
from tests.polygrain.compute.test_processes import contents

GIVEN = "--nnodes 2 --node-rank 1 --nproc-per-node 2 --master-addr 127.0.0.1 --master-port 29519"


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    monkeypatch.setenv("POLYGRAIN_PATIENCE", "1")


def test_options__are_split_and_the_stage_gets_its_arguments():
    found = several.options(GIVEN, "seeds", ["data/images", "--task", "a b"])
    assert (found.nnodes, found.node_rank, found.nproc_per_node) == ("2", 1, "2")
    assert found.training_script == "stages.seeds" and found.training_script_args == ["data/images", "--task", "a b"]
    assert found.rdzv_conf == "join_timeout=1,timeout=1"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("--nnodes 2 evil.py", "only options"),
        ("--nnodes 2; touch x", "invalid literal"),
        ("--nnodes 2 $(touch x)", "only options"),
        ("--no-python", "only options"),
        ("--nnodes two", "invalid literal"),
        ("--nodes 2 --colour", "ambiguous|unrecognized|only options"),
        ("--nproc-per-node", "only options|expected one argument"),
        ("--nnodes '2", "No closing quotation"),
    ],
)
def test_options__refuses_what_is_none(text, said):
    with pytest.raises(ValueError, match=rf"(?s)POLYGRAIN_TORCHRUN is .*({said}).*torchrun's options are allowed"):
        several.options(text, "seeds", [])


@pytest.mark.parametrize("text", ["", "0", "-1", "a", "1.5", "9" * 9])
def test_options__a_wrong_patience(text, monkeypatch):
    monkeypatch.setenv("POLYGRAIN_PATIENCE", text)
    with pytest.raises(ValueError, match=r"POLYGRAIN_PATIENCE is .*whole seconds"):
        several.options(GIVEN, "seeds", [])


def test_call_nodes__names_the_missing_ones():
    first = several.options(GIVEN.replace("rank 1", "rank 0").replace("nnodes 2", "nnodes 3"), "seeds", [])
    with pytest.raises(TimeoutError, match=r"node 1, 2 of 3 did not come to 127.0.0.1:29519 within 1 s.*--node-rank 1"):
        several.call_nodes(first)
    with pytest.raises(TimeoutError, match=r"node 0 does not answer at 127.0.0.1:29519 within 1 s"):
        several.call_nodes(several.options(GIVEN, "seeds", []))


@pytest.mark.parametrize("text", ["--standalone --nproc-per-node 2", "--nnodes 2 --rdzv-backend c10d --rdzv-id 1"])
def test_call_nodes__nothing_to_wait_for(text):
    assert several.call_nodes(several.options(text, "seeds", [])) is None


def test_stages_run__takes_words_that_no_shell_reads(tmp_path):
    given = {"POLYGRAIN_TORCHRUN": "--nnodes 2; touch $(echo evil)", "POLYGRAIN_LAUNCH": "echo * ; touch `echo evil`"}
    command = ["sh", str(ROOT / "stages/run"), "seeds", "data/a b"]
    done = subprocess.run(command, cwd=tmp_path, env=os.environ | given, capture_output=True, text=True, check=True)
    assert done.stdout == "* ; touch `echo evil` python -m polygrain.runner.several seeds data/a b\n"
    assert not list(tmp_path.iterdir())


def write_tree(folder, images, encoder):
    """What a machine has before a stage: the values, and what the stage reads."""
    given = lists().model_dump() | {
        "features": {"unit_length": True, "dtype": "float32", "precision": "float32", "batch": 7},
        "seeds": shared_work.SEEDS.model_dump(),
        "pseudo_labels": {"max_iterations": 50},
        "knn_graph": {"neighbours": 4, "index": "exact", "recall": 0.95},
        "adaptor": shared_work.TRAINING.model_dump() | {"epochs": 6, "width": 4},
        "fusion": shared_work.FUSION.model_dump(),
        "distillation": shared_work.DISTILLATION.model_dump(),
        "choice": {"criterion": criterion().model_dump(), "reference": reference().model_dump()},
    }
    folder.mkdir()
    file = folder / "params.yaml"
    with file.open("w") as stream:
        YAML(typ="safe").dump(given, stream)
    mirror(images, folder / "data/images")
    mirror(encoder, folder / "data/encoder")
    return folder


STEPS = {
    "data/features/dots": ("features", "data/images/dots", "data/encoder", "--task", "dots"),
    "data/seeds": ("seeds", "data/images", "data/features"),
    "data/pseudo_labels/k8": ("pseudo_labels", "data/images", "data/features", "data/seeds", "--granularity", "k8"),
    "data/knn_graph": ("knn_graph", "data/images", "data/features"),
    "data/adaptor/k8": ("adaptor", "data/images", "data/encoder", "data/pseudo_labels/k8", "--granularity", "k8"),
    "data/fusion/neighbour": ("fusion", "data/images", "data/adaptor", "data/knn_graph", "--pairs", "neighbour"),
    "data/distillation/encoder": ("distillation", "data/images", *["data/encoder"] * 2, "--name", "encoder"),
}


def words(output):
    """A stage's name and its arguments."""
    stage, *rest = STEPS[output]
    places = [word for word in rest if word.startswith("data/")]
    return stage, *places, output, *rest[len(places) :]


def start(nodes, trees, output, **given):
    return [node.start(tree, *words(output), **given) for node, tree in zip(nodes, trees, strict=True)]


def ended(running):
    return [(program.communicate(timeout=300)[0], program.returncode) for program in running]


def alone(tree, *arguments):
    torchrun(1, "-m", f"stages.{arguments[0]}", *arguments[1:], folder=tree)


@pytest.mark.slow
def test_two_machines__with_trees_of_their_own_give_the_results_of_one_process(tmp_path, monkeypatch):
    """What the first machine has made comes to the second through an object store."""
    images, encoder = write_images(tmp_path / "images", classes=8, per_class=80), write_encoder(tmp_path / "encoder")
    one, *two = (write_tree(tmp_path / name, images, encoder) for name in ("one", "a", "b"))
    for tree in (one, *two):
        alone(tree, "features", "data/images/bars", "data/encoder", "data/features/bars", "--task", "bars")
        (tree / "data/adaptor/k4").mkdir(parents=True)
        save(adapted(encoder, ["k4"], 0), tree / "data/adaptor/k4")
    with two_nodes() as nodes, streams.served(monkeypatch) as store:
        for output in STEPS:
            alone(one, *words(output))
            for said, code in ended(start(nodes, two, output, patience=120)):
                assert code == 0, said
            assert not (two[1] / output).exists()
            carry(store, streams.BUCKET, two[0] / output, two[1] / output)
            assert contents(two[0] / output) == contents(two[1] / output)
            trained = output.startswith(("data/adaptor", "data/fusion", "data/distillation"))
            if not trained:
                assert contents(one / output) == contents(two[0] / output), output
                continue
            weights = [load_file(tree / output / "weights.safetensors") for tree in (one, two[0])]
            for part, tensor in weights[0].items():
                assert (tensor - weights[1][part]).abs().max() < 1e-3, f"{output} {part}"


@pytest.mark.slow
def test_two_machines__one_is_killed_and_the_next_start_goes_on(tmp_path):
    images, encoder = write_images(tmp_path / "images", classes=8, per_class=80), write_encoder(tmp_path / "encoder")
    trees = [write_tree(tmp_path / name, images, encoder) for name in ("a", "b")]
    labels, centroids = np.arange(640) % 8, np.random.default_rng(0).normal(size=(8, 24)).astype(np.float32)
    for tree in trees:
        (tree / "data/pseudo_labels/k8").mkdir(parents=True)
        arrays.write(tree / "data/pseudo_labels/k8/labels.zarr", labels)
        arrays.write(tree / "data/pseudo_labels/k8/centroids.zarr", centroids)
    output = "data/adaptor/k8"
    with two_nodes() as nodes:
        for said, code in ended(start(nodes, trees, output)):
            assert code == 0, said
        whole = contents(trees[0] / output)
        shutil.rmtree(trees[0] / output)
        running = start(nodes, trees, output)
        saved = trees[0] / ".work/adaptor"
        while not list(saved.glob("*/checkpoint.safetensors")):
            assert running[0].poll() is None
            time.sleep(0.05)
        os.killpg(running[1].pid, signal.SIGKILL)
        (said, code), _ = ended(running)
        assert code == 1 and "was lost" in said and "start again" in said
        assert not (trees[0] / output).exists() and not list(trees[0].rglob("*.partial"))
        for said, code in ended(start(nodes, trees, output)):
            assert code == 0 and "continues after epoch" in said
        assert contents(trees[0] / output) == whole
