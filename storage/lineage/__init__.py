"""Where things come from: events of stages, the ancestry of artifacts, traces of single rows."""
