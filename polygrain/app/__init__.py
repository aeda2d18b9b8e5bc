"""A finished model in use: the search page, the export, new profiles, the papers' pages."""
