"""A number with its noun, for messages."""


def counted(count: int, noun: str, many: str = "") -> str:
    """Such as "1 image" and "1,200 images"; `many` is the plural where it has another ending."""
    return f"{count:,} {noun if count == 1 else many or f'{noun}s'}"
