"""The learned matrix: descriptors, PCA, training of all runs together, asymmetric recall, the model to hand out."""
