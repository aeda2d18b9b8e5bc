"""A model as files that need nothing of this project: a program of torch, one of ONNX, and a card."""
