"""Prompts on disk: the artifact, adapters of PEFT, checkpoints, and the backbone a prompt belongs to."""
