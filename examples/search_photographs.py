"""Photographs that look like one: python examples/search_photographs.py FOLDER QUERY [MODEL]

MODEL is a folder such as profiles/shoes/data/choice; without it the bundled encoder looks, which is small.
"""

import sys
from pathlib import Path

import numpy as np

from polygrain import embed, load
from polygrain.collection.postprocessing.comparison import choose

folder, query, *named = map(Path, sys.argv[1:])
model = load(named[0] if named else Path(__file__).parents[1] / "encoders/vit48")
paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg", ".png", ".webp"))
vectors, left = embed(model, paths, skip=True)
for place, reason in left.items():
    print(f"{paths[place]} is left out: {reason}", file=sys.stderr)
paths = [path for place, path in enumerate(paths) if place not in left]
comparison, _ = choose(vectors, front=model.in_front)  # 100 photographs or more: less their mean, and smoothed
scores = comparison.rows(vectors, model.in_front) @ comparison.query(embed(model, [query]))[0]
for place in np.argsort(-scores)[:10]:
    print(f"{scores[place]:.3f}  {paths[place]}")
