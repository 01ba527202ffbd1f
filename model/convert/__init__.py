"""Backbones from elsewhere: converted from ONNX, or made from scratch."""
