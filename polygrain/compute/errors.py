"""Errors of other libraries, as part of a sentence."""


def first_line(error: BaseException) -> str:
    """The first line of an error's text, or its kind where it has none."""
    return str(error).strip().split("\n", 1)[0].strip() or type(error).__name__
