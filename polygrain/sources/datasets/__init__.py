"""Public data sets in their published layouts.

A new data set: a reader in `readers.py`, an address in `addresses.py`, a line in `counts.csv`.
"""
