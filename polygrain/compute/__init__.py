"""The machine and plain arrays on it: processes, devices, rows in blocks, principal components.

It imports no other room. Whatever knows what an image, a label or a file format is belongs further up.
"""
