"""Shapes in signatures are checked while tests run, and only then (it costs nothing in production)."""

import os

os.environ.setdefault("DVC_NO_ANALYTICS", "1")
os.environ.setdefault("DO_NOT_TRACK", "1")

from jaxtyping import install_import_hook

hook = install_import_hook("stages", "beartype.beartype")
