"""The page of a study: recall curves, tables, queries."""
