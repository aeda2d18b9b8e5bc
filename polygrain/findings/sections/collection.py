"""New pictures search the collection: every model, with plain and smoothed images."""

from polygrain.findings.collection import twins
from polygrain.findings.outcome import Content, Outcome


def content(found: Outcome) -> Content:
    return {"collection": found.searched, "twins": twins(found.places.evaluation, found.searched.table)}
