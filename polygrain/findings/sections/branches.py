"""The reports of the other branches of the graph, by their place beside this one; each is a stage of its own."""

from polygrain.findings.outcome import Content, Outcome


def content(found: Outcome) -> Content:
    lists = found.lists
    branches: list[tuple[str, str, list[str]]] = [
        ("gsp", "Optimal-transport pooling", [*lists.gsp]),
        ("tll", "Visual analogies", [*lists.tll]),
        ("mpcl", "Pretraining with several projectors", [*lists.mpcl]),
        ("mrt", "The benchmark's tables beside the published ones", [*lists.mrt]),
    ]
    pages = [
        {"title": f"{title}: {item}", "address": f"../{branch}_report/{item}/index.html"}
        for branch, title, items in branches
        for item in items
    ]
    return {"pages": pages}
