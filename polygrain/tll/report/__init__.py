"""What the page of a study shows: recall curves, tables, queries."""
