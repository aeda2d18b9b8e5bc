"""Generalized Sum Pooling: poolings, training in folds, ensembles of folds, small studies, its pages."""
