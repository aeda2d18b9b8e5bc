"""A collection: images or rows of any encoder, how they are compared, and the model that made them."""
