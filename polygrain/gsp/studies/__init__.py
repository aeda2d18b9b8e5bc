"""Small controlled experiments: bags of tokens, and a toy map of colours."""
