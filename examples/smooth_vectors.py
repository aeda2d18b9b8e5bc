"""Vectors of CLIP, DINO or any encoder, smoothed and searched: python examples/smooth_vectors.py VECTORS.npy [ALIKE]

ALIKE is about how many rows show the same thing, if you know.
"""

import sys

import faiss
import numpy as np

from polygrain.collection.postprocessing.comparison import choose

vectors = np.load(sys.argv[1]).astype(np.float32)
alike = int(sys.argv[2]) if len(sys.argv) > 2 else None
faiss.normalize_L2(vectors)
comparison, _ = choose(vectors, alike)
index = faiss.IndexFlatIP(vectors.shape[1])
index.add(comparison.rows(vectors))
_, nearest = index.search(comparison.query(vectors[:5]), 6)
for row, found in enumerate(nearest):
    print(f"row {row} is like rows {', '.join(str(other) for other in found if other != row)}")
