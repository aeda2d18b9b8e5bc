"""The search for the model to hand out: the forms that models can have, which one is taken, and what is said of it."""
