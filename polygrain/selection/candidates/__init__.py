"""The search for the recommended model: the forms that models can have, the choice of one, and its report."""
