"""Photographs in class folders, from a pretrained network: MAP@R of GAP, GeMean and GSP on unseen classes, two folds.

    python -m benchmarks.gsp_photos --images DIR [--images DIR ...] --weights FILE --architecture NAME
                                    [--arguments JSON] [--size 96] [--steps 200] [--loss proxy_nca_pp]

Every DIR is a task of its own, `<DIR>/<class>/<image>`: the first half of its classes trains in two class-disjoint
folds, the other half is searched. The network is frozen and every pooling has the same budget: the same steps, the same
embedding, the state that is best on the held-out fold. Prints a JSON line per task and run.
"""

import argparse
import json
import tempfile
from pathlib import Path

from polygrain.config.lists import Lists
from polygrain.runner.command import read_params
from stages import gsp_ensemble, gsp_folds, images

ROOT = Path(__file__).parent.parent
POOLINGS = {
    "gap": {},
    "gemean": {"p": 3.0},
    "gsp": {"prototypes": 64, "mu": 0.3, "epsilon": 5.0},
}
RUNS = {"gap": ("gap", 0.0), "gemean": ("gemean", 0.0), "gsp": ("gsp", 0.0), "gsp-zs": ("gsp", 0.1)}


def run_of(task: str, run: str, loss: str) -> dict:
    pooling, share = RUNS[run]
    return {"images": f"images/{task}", "loss": loss, "pooling": pooling, "zero_shot": share, "values": {}}


def fold_params(values: dict, arguments: argparse.Namespace) -> gsp_folds.Params:
    """The default values with another backbone, the paper's embedding, and no layer before the pooling."""
    changed = values | {"side": arguments.size, "hidden": 0, "embedding": 128, "poolings": POOLINGS}
    changed |= {"pictures": 1, "protocol": {"kind": "fair", "folds": 2, "repeats": 1, "chosen_by": "map_at_r"}}
    changed["stopping"] = values["stopping"] | {"longest": arguments.steps}
    changed["backbone"] = values["backbone"] | {
        "weights": "file",
        "path": str(arguments.weights),
        "architecture": arguments.architecture,
        "arguments": json.loads(arguments.arguments),
        "mean": [0.5, 0.5, 0.5],
        "std": [0.5, 0.5, 0.5],
        "depth": None,
    }
    return gsp_folds.Params.model_validate(changed)


def main(arguments: argparse.Namespace) -> None:
    values = read_params(ROOT / "params.yaml")
    tasks = {folder.name: folder for folder in arguments.images}
    names = {f"{task}-{run}": run_of(task, run, arguments.loss) for task in tasks for run in RUNS}
    own = {
        "tasks": {task: {"source": "folder", "path": str(folder)} for task, folder in tasks.items()},
        "gsp_collages": {},
        "gsp_runs": names,
        "gsp": {task: f"images/{task}" for task in tasks},
    }
    lists = Lists(**{key: (values | own)[key] for key in Lists.model_fields})
    params, ensemble = (
        fold_params(values["gsp_folds"], arguments),
        gsp_ensemble.Params(recall_at=[1, 4], splits=0, ridge=0.05, thumbnail=48),
    )
    decoded = images.Params.model_validate(values["images"] | {"side": arguments.size})
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        for task, folder in tasks.items():
            stored = root / "images" / task
            images.main(folder, stored, task=task, source="folder", params=decoded, lists=lists)
            for run in RUNS:
                name = f"{task}-{run}"
                encoder = ROOT / "encoders" / "vit48"
                gsp_folds.main(
                    stored, encoder, root / "folds" / name, run=name, params=params, lists=lists, seed=0, shape="crop"
                )
            gsp_ensemble.main(stored, root / "folds", root / "found", name=task, params=ensemble, lists=lists, seed=0)
            for name, forms in json.loads((root / "found" / "metrics.json").read_text()).items():
                row = {"claim": "photographs, MAP@R in percent", "task": task, "run": name.removeprefix(f"{task}-")}
                single = forms["single"]["map_at_r"]
                row |= {"one fold": round(100 * single["mean"], 2), "spread over folds": round(100 * single["std"], 2)}
                both = {form: round(100 * forms[form]["map_at_r"]["mean"], 2) for form in ("concat", "mean_vector")}
                print(json.dumps(row | both), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=Path, action="append", required=True)
    parser.add_argument("--weights", type=Path, required=True, help="safetensors with timm's names")
    parser.add_argument("--architecture", required=True)
    parser.add_argument("--arguments", default="{}", help="more arguments for timm, as JSON")
    parser.add_argument("--size", type=int, default=96)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--loss", default="proxy_nca_pp")
    main(parser.parse_args())
