"""Images in tars, Parquet files and object stores, read in order and in bounded memory; nothing is unpacked."""
