"""Public data sets in their published layouts: how each is read, where it comes from, how much of it there must be.

A new data set: a reader in `readers.py`, an address in `addresses.py`, a line in `counts.csv`.
"""
