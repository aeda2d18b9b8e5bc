"""The arrays and tables that cross a stage boundary: declared, written in whole shards, read by mmap."""
