"""What each stage does, one module a stage."""
