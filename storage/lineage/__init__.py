"""Lineage: the events of stages, the ancestry of artifacts, and the traces of single rows."""
