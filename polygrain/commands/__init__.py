"""One file for each command of `polygrain`: its words, checked, then one call. What takes long to import is imported there."""
