"""The sizes in which rows pass through the backbone; a module without torch, so that estimates can read it quickly."""

CHUNK_TOKENS = {"cpu": 768, "cuda": 32_768}
LOW_CHUNK_TOKENS = {"cpu": 1152, "cuda": 32_768}  # in bfloat16: activations are smaller, the decoder counts for more
TUNING_TOKENS = {"cpu": 2048, "cuda": 32_768}  # no graph is kept, and more rows share one read of the output matrix
SMALLEST_CHUNK = 64  # tokens; a chunk always holds at least one row
TRAINED_WEIGHT_BYTES = 20  # of a weight that is trained: itself, its gradient, AdamW's two means, the best so far
GRAPH_SHARE = 0.25  # of the device's memory, for kept graphs
