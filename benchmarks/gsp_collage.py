"""The default collages, seeds 0, 1, 2: MAP@R on unseen classes of every run of params.yaml.

    python -m benchmarks.gsp_collage [--seeds 0 1 2]

Runs the stages themselves on the embedded images, in a temporary folder; about two minutes a seed on one core. Prints
a JSON line per seed and run: `separate` is the average of the single folds' scores (the paper's 128-D), `concat` the
score of all folds side by side (its 512-D), `mean_vector` that of their mean, which the paper does not report. Then a
line per loss: whether GSP with the zero-shot loss is above average pooling in every seed, by `separate`.
"""

import argparse
import json
import tempfile
from pathlib import Path

from polygrain.config.lists import Lists
from polygrain.runner.command import read_params
from stages import gsp_collage, gsp_ensemble, gsp_folds, images

ROOT = Path(__file__).parent.parent


def run(folder: Path, values: dict, lists: Lists, seed: int) -> dict[str, dict]:
    """The ensemble's metrics for one seed; images that do not depend on it are made once."""
    for task, spec in lists.tasks.items():
        if not (folder / "images" / task).exists():
            params = images.Params.model_validate(values["images"])
            source, path = spec.source, ROOT / spec.path
            images.main(path, folder / "images" / task, task=task, source=source, params=params, lists=lists)
    own = folder / str(seed)
    collages = gsp_collage.Params.model_validate(values["gsp_collage"])
    gsp_collage.main(folder / "images", own / "collage", collages="collage", params=collages, lists=lists, seed=seed)
    params = gsp_folds.Params.model_validate(values["gsp_folds"])
    for name in lists.gsp_runs:
        encoder = ROOT / "encoders" / "vit48"
        gsp_folds.main(
            own / "collage",
            encoder,
            own / "folds" / name,
            run=name,
            params=params,
            lists=lists,
            seed=seed,
            shape="crop",
        )
    ensemble = gsp_ensemble.Params.model_validate(values["gsp_ensemble"])
    gsp_ensemble.main(
        own / "collage", own / "folds", own / "ensemble", name="collage", params=ensemble, lists=lists, seed=seed
    )
    return json.loads((own / "ensemble" / "metrics.json").read_text())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    seeds = parser.parse_args().seeds
    values = read_params(ROOT / "params.yaml")
    lists = Lists(**{key: values[key] for key in Lists.model_fields})
    gains: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        for seed in seeds:
            metrics = run(Path(temporary), values, lists, seed)
            scores = {
                name: {form: round(100 * value[form]["map_at_r"]["mean"], 2) for form in value if form != "single"}
                for name, value in metrics.items()
            }
            for name, forms in scores.items():
                print(json.dumps({"claim": "collage, MAP@R in percent", "seed": seed, "run": name} | forms), flush=True)
            for loss in ("c2", "pnca"):
                after, before = (scores[f"{loss}-{how}"]["separate"] for how in ("gsp-zs", "gap"))
                gains.setdefault(loss, []).append(after - before)
    for loss, met in gains.items():
        row = {"claim": f"collage, {loss}: GSP with zero-shot loss above the mean in every seed", "holds": min(met) > 0}
        print(json.dumps(row | {"gains": [round(gain, 2) for gain in met]}), flush=True)
