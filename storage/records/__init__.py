"""Records of files: documents, labeled sets, texts to label, and which documents are kept."""
