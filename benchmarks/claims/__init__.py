"""The papers' conclusions as records, and their verdicts, which are computed from kept numbers."""
