"""A finished model in use: the search page and the export."""
