"""The machine and plain arrays on it: processes, devices, rows in blocks, principal components.

It imports no other room. Code that knows images, labels or file formats belongs further up.
"""
