"""The run of a stage: its parameters, its complete outputs, its progress.

None of it changes a stage's result, so no stage depends on it: a better progress bar retrains nothing.
"""
