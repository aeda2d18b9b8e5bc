"""`python -m polygrain.sources.datasets ROOT NAME [NAME ...]` fetches public data sets into ROOT/NAME.

No stage fetches data by itself.
"""

import sys
from pathlib import Path

from polygrain.sources.datasets.load import check_counts, load
from polygrain.sources.datasets.sets import SETS

if len(sys.argv) < 3:
    sys.exit(f"error: give a folder and the names of data sets, which are {', '.join(SETS)}")
try:
    for name in sys.argv[2:]:
        dataset = load(name, Path(sys.argv[1]) / name, download=True)
        check_counts(dataset)
        sys.stdout.write(f"{name}: {len(dataset.paths):,} images of {len(dataset.class_names):,} classes\n")
except ValueError as error:
    sys.exit(f"error: {error}")
