"""Totally looks like: visual analogies from pairs, by layers of a frozen network, PCA and one learned matrix."""
