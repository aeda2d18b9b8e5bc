"""The frameworks (MoCo v2, MoCo v3, Barlow Twins) with several heads, their objective, and the run around them.

A new framework: a file here, and its name in `run.py`.
"""
