"""The frozen backbone: T5's forward pass, fast, with its kernels and derivatives."""
