"""MPCL: pretraining with several projectors, and probes of an encoder."""
