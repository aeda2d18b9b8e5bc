"""Per task some queries under the encoder and the model of a row, and how many queries gained or lost."""

from polygrain.findings import queries
from polygrain.findings.chosen import ENCODER
from polygrain.findings.outcome import Content, Outcome
from polygrain.report.rows import row_of

TITLE = "Queries"


def content(found: Outcome) -> Content:
    """`examples` are the median of all queries, the largest gain and the largest loss."""
    if not found.model or ENCODER not in found.table.rows:
        return {"galleries": [], "examples": []}
    row = found.advice.row
    sides = found.sides(row if row in found.leading.rows.keys() - {ENCODER} else found.model)
    read = [queries.read_queries(file) for _, file in sides]
    galleries, orders, given = [], dict[str, list[queries.Compared]](), {}
    for task in found.tasks:
        is_plain = task.name in found.searched.unsmoothed
        titles = [
            row_of(name).title + ", smoothed" * (file.name.startswith("smoothed") and not is_plain)
            for name, file in sides
        ]
        both = [(title, rows.get(task.name, {})) for title, rows in zip(titles, read, strict=True)]
        order = queries.compare(both[0][1], both[1][1], task.labels, ~task.is_query if found.leads else task.is_test)
        if not order:
            continue
        images = found.places.images / task.name
        orders[task.name], given[task.name] = order, (images, task.labels, task.class_names, both)
        selected = queries.select_queries(order, task.labels, found.params.gains)
        entries = queries.show(*given[task.name], selected, found.params.thumbnail)
        galleries.append({"task": task.name, "counts": queries.changes(order), "entries": entries})
    examples = []
    for name, reason, one in queries.first_screen(orders):
        examples += queries.show(*given[name], [(f"{name}: {reason}", one)], found.params.thumbnail)
    return {"galleries": galleries, "examples": examples}
