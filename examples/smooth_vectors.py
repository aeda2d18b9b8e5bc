"""Vectors of CLIP, DINO or any encoder, smoothed and searched: python examples/smooth_vectors.py VECTORS.npy [ALIKE]

ALIKE is about how many rows show the same thing, if you know.
"""

import sys

import numpy as np

from polygrain import Collection

alike = int(sys.argv[2]) if len(sys.argv) > 2 else None
vectors = np.load(sys.argv[1])
collection = Collection.of_vectors(vectors, alike=alike)
for row, hits in enumerate(collection.search(vectors[:5], k=6)):
    print(f"row {row} is like rows {', '.join(hit.path for hit in hits if hit.path != str(row))}")
