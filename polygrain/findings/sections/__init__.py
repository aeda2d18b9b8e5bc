"""The sections of the report: each makes the content of its templates from a run's outputs."""
