"""The page of the main report: its numbers, pictures and wording."""
