"""Images from folders, zips, streams, public data sets and installed packages.

Every reader of a file of unknown origin is here, and bounds its bytes and pixels.
"""
