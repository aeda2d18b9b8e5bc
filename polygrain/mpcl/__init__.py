"""MPCL: pretraining with several projectors, and probes of what an encoder knows."""
