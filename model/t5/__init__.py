"""The frozen backbone: a fast forward pass of T5, with its kernels and derivatives."""
