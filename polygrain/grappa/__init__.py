"""Grappa, the main path: training on pseudo-labels, learning to fuse, the random sets it is compared with, its tables.

The adaptors themselves are part of the model, in `encoder`.
"""
