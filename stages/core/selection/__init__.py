"""Choosing without labels: how good an embedding is by two views of each image, the forms a model can be handed out in,
and which of them is taken.
"""
