"""A project whose graph is finished, all its branches, on a few dozen drawn images: to be attacked."""

from pathlib import Path

from PIL import Image, ImageOps

from tests.helpers.pairs import paint
from tests.helpers.project import edit, new_project, repro

STUDY = {"source": "folder", "path": "raw/pairs", "listed": None, "extractor": "encoder", "weights": "data/encoder"}
RUN = {"images": "images/shapes", "loss": "c2", "zero_shot": 0, "values": {}}


def shrink(values: dict) -> None:
    """One item of every branch, each made as small as it goes."""
    values["models"] = {"pixels": "images", **values["models"], "chosen": "choice"}
    values["gsp_runs"] = {"c2-gap": RUN | {"pooling": "gap"}, "c2-gsp": RUN | {"pooling": "gsp"}}
    values["gsp"] = {"shapes": "images/shapes"}
    values["gsp_folds"]["losses"]["c2"] |= {"batch_classes": 2, "per_class": 4}
    values["gsp_folds"]["poolings"]["gsp"]["prototypes"] = 8
    values["gsp_folds"]["stopping"] |= {"every": 5, "longest": 10}
    values["gsp_ensemble"]["splits"] = 5
    values["mpcl"] = {"heads": {"framework": "moco_v3", "heads": 2, "projectors": "shared", "variant": "plain"}}
    values["mpcl"]["heads"] |= {"contrast": 0.01, "balance": "neutral", "start": "random", "path": "requirements.lock"}
    values["mpcl_encoder"] |= {"epochs": 1, "batch": 8}
    values["mpcl_encoder"]["network"]["kwargs"] |= {"depth": 1}
    values["mpcl_probe"]["linear"] |= {"epochs": 1}
    values["mpcl_probe"]["fine_tuning"] |= {"epochs": 1}
    values["tll"] = {"own": STUDY}
    values["tll_pca"] |= {"components": 8, "runs": 3}
    values["tll_adaptation"] |= {"hidden": 16, "steps": 10}


def finished_project(folder: Path) -> Path:
    """A copy of the project in a folder, reproduced from nothing."""
    new_project(folder)
    for label in range(2):  # metric learning wants eight classes: two more, in the colours that are left
        (folder / f"raw/shapes/class{6 + label}").mkdir()
        for file in (folder / f"raw/shapes/class{label}").glob("*.png"):
            ImageOps.invert(Image.open(file)).save(folder / f"raw/shapes/class{6 + label}" / file.name)
    paint(folder / "raw/pairs")
    edit(folder, shrink)
    repro(folder)
    return folder
