"""A project whose graph is finished, all its branches, on a few dozen drawn images: to be attacked."""

from pathlib import Path

from PIL import Image, ImageOps

from tests.helpers.pairs import paint
from tests.helpers.project import edit, new_project, repro
from tests.helpers.small import CONFIG, SIZE, write_encoder

STUDY = {"source": "folder", "path": "raw/pairs", "listed": None, "extractor": "encoder", "weights": "data/encoder"}
RUN = {"images": "images/shapes", "loss": "c2", "pooling": "gsp", "zero_shot": 0, "values": {}}


def shrink(values: dict) -> None:
    """One item of most branches, each made as small as it goes."""
    values["encoder"] |= {"path": "raw/encoder", "resize": SIZE}
    values["images"]["side"] = SIZE
    values["models"] = {name: values["models"][name] for name in ("encoder", "k3", "neighbour")} | {"chosen": "choice"}
    values["fusions"] = {name: values["fusions"][name] for name in ("average", "neighbour")}
    values["distillations"] = {"encoder": "resolution"}
    values["adaptor"]["width"] = values["distillation"]["width"] = 4
    for section in (values["adaptor"], values["fusion"]["neighbour"], values["distillation"]):
        section["epochs"] = 1
    target = {"scales": [1], "mirrored": False, "blocks": 2, "dim": 8}
    values["distillation"]["target"] = values["choice"]["reference"] = target
    values["choice"] |= {"strengths": [1.0], "finalists": 1, "layers": ["half"], "dims": [8]}
    values["gsp_runs"] = {"c2-gsp": RUN}
    values["gsp"] = {"shapes": "images/shapes"}
    values["gsp_folds"] |= {"side": SIZE, "hidden": 16, "embedding": 8}
    values["gsp_folds"]["backbone"]["depth"] = 2
    values["gsp_folds"]["losses"]["c2"] |= {"batch_classes": 2, "per_class": 4}
    values["gsp_folds"]["poolings"]["gsp"]["prototypes"] = 8
    values["gsp_folds"]["stopping"] |= {"every": 5, "longest": 10}
    values["gsp_ensemble"]["splits"] = 5
    values["mpcl"] = {"heads": {"framework": "moco_v3", "heads": 2, "projectors": "shared", "variant": "plain"}}
    values["mpcl"]["heads"] |= {"contrast": 0.01, "balance": "neutral", "start": "random", "path": "requirements.lock"}
    values["mpcl_encoder"] |= {"epochs": 1, "batch": 8}
    network = {"architecture": CONFIG.architecture, "kwargs": CONFIG.kwargs, "side": SIZE}
    values["mpcl_encoder"]["network"] = network
    values["mpcl_probe"] |= {"shares": [0.5]}
    values["mpcl_probe"]["linear"]["epochs"] = values["mpcl_probe"]["fine_tuning"]["epochs"] = 1
    values["tll"] = {"own": STUDY}
    values["tll_pairs"]["side"] = SIZE
    values["tll_features"]["extractors"]["encoder"]["layers"] = ["blocks.0", "blocks.1"]
    values["tll_pca"] |= {"components": 8, "runs": 2}
    values["tll_adaptation"] |= {"hidden": 16, "steps": 10}


def finished_project(folder: Path) -> Path:
    """A copy of the project in a folder, reproduced from nothing."""
    new_project(folder)
    for label in range(2):  # metric learning wants eight classes: two more, in the colours that are left
        (folder / f"raw/shapes/class{6 + label}").mkdir()
        for file in (folder / f"raw/shapes/class{label}").glob("*.png"):
            ImageOps.invert(Image.open(file)).save(folder / f"raw/shapes/class{6 + label}" / file.name)
    paint(folder / "raw/pairs")
    write_encoder(folder / "raw/encoder")
    edit(folder, shrink)
    repro(folder)
    return folder
