"""Why this model: the choice without labels in sentences, a chart and the best candidates."""

from polygrain.findings import wording
from polygrain.findings.outcome import Content, Outcome


def content(found: Outcome) -> Content:
    compared = found.choice.compared.values()
    criteria = [end for sides in compared for side in ("encoder", "recommended") for end in sides[side]]
    return {"choice": found.choice, "place_criterion": wording.placement(criteria)}
