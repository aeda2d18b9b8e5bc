"""Photographs that look like one: python examples/search_photographs.py FOLDER QUERY [MODEL]

MODEL is a folder such as profiles/shoes/data/choice; without it the bundled encoder looks, which is small.
"""

import sys
from pathlib import Path

from polygrain import Collection

folder, query, *named = map(Path, sys.argv[1:])
photographs = Collection.of(folder, named[0] if named else Path(__file__).parents[1] / "encoders/vit48")
for path, reason in photographs.left_out.items():
    print(f"{path} is left out: {reason}", file=sys.stderr)
for score, path in photographs.search(query, k=10)[0]:
    print(f"{score:.3f}  {folder / path}")
