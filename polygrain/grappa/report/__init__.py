"""The main report and the benchmark's tables: which numbers and pictures they show, and in which words."""
