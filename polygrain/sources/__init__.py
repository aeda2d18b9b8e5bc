"""Where images come from: folders, zips, public data sets, installed packages; names and bytes that nobody vouches for.

What reads a file of unknown origin belongs here, with every doubt settled before memory is spent on it.
"""
