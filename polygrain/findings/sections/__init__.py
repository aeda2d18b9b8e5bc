"""The sections of the report: each makes its content from what a run left, for its templates beside it."""
