"""Detection over a pretrained ResNet: annotated images, the network, and average precision."""
