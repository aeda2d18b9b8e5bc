"""From a feature map to one vector: GSP's transport and layer, and the poolings it is compared with, one a file.

A new pooling: a file here, and its name in `build.py`.
"""

from polygrain.gsp.poolings.generalized_sum import GeneralizedSumPooling

__all__ = ["GeneralizedSumPooling"]
