"""From a feature map to one vector: GSP's transport and layer, and the poolings that it is compared with, one per file.

A new pooling is a file here, and its import in `build.py`.
"""
