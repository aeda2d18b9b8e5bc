"""The arrays and tables that cross a stage boundary: declared, written in whole shards, read by mmap.

A new kind of stored array is declared here; what is computed from it is not.
"""
