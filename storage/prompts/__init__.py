"""Prompts on disk: the artifact, PEFT adapters, checkpoints, and the backbone that a prompt belongs to."""
