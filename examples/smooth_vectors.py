"""Vectors of CLIP, DINO or any encoder, smoothed and searched: python examples/smooth_vectors.py VECTORS.npy [ALIKE]

ALIKE is about how many rows show the same thing, if you know.
"""

import sys

import faiss
import numpy as np

from polygrain.retrieval import smooth

vectors = np.load(sys.argv[1]).astype(np.float32)
alike = int(sys.argv[2]) if len(sys.argv) > 2 else None
index = faiss.IndexFlatIP(vectors.shape[1])
index.add(smooth(vectors, alike))
faiss.normalize_L2(vectors)
_, nearest = index.search(vectors[:5], 6)
for row, found in enumerate(nearest):
    print(f"row {row} is like rows {', '.join(str(other) for other in found if other != row)}")
