"""Meta-training: the meta step, its objectives, the curriculum, the trainer and its ranks."""
