"""Synthetic tokens with the default values, seeds 0 to 4: MAP@R of GSP against the mean, on bags never met before.

python -m benchmarks.gsp_tokens
"""

import json
import tempfile
from pathlib import Path

from polygrain.runner.command import read_params
from stages.gsp_study import Params, learn

if __name__ == "__main__":
    params = Params.model_validate(read_params(Path(__file__).parent.parent / "params.yaml")["gsp_study"]).tokens
    gains = []
    for seed in range(5):
        with tempfile.TemporaryDirectory() as work:
            scores = {how: round(100 * learn(params, how, seed, Path(work) / how)[0], 2) for how in ("gap", "gsp")}
        gains.append(scores["gsp"] - scores["gap"])
        print(json.dumps({"claim": "tokens, MAP@R in percent", "seed": seed} | scores), flush=True)
    row = {
        "claim": "tokens, GSP above the mean in every seed",
        "holds": min(gains) > 0,
        "smallest": round(min(gains), 2),
    }
    print(json.dumps(row))
