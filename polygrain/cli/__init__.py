"""One file for each command of `polygrain`: its words, checked, then one call.

What takes long to import is imported inside the function, so that `polygrain --help` answers at once.
"""
