"""Meta-training: the step, its objectives, the curriculum, the trainer and its ranks."""
