"""The run of a stage: its parameters, its complete outputs, its progress.

None of it decides what a stage computes, so no stage depends on it: a better progress bar retrains nothing.
"""
