"""Images in tars, Parquet files and object stores, read one behind the other in bounded memory.

Nothing is unpacked and nothing of them is laid on the disk; what may not be read is left out with its reason.
"""
