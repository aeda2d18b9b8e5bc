"""One way to cut rows into blocks."""


def blocks(count: int, step: int) -> list[slice]:
    """0..count in slices of `step` rows, the last one shorter."""
    return [slice(start, min(start + step, count)) for start in range(0, count, step)]


def blocks_within(count: int, width: int, cells: int, least: int = 1) -> list[slice]:
    """Slices of `count` rows that hold at most `cells` values of `width` columns each, but `least` rows."""
    return blocks(count, max(least, cells // max(1, width)))
