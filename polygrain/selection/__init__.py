"""Choosing without labels: how good an embedding is, by the views of each image and the encoder's careful look."""
