"""The machine and plain arrays on it: processes, devices, threads, rows in blocks. Imports nothing of ours.

Whatever knows what an image, a label or a file format is belongs further up.
"""
