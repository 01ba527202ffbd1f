"""Records of files: the one reader of all formats, documents, labeled sets, texts to label, which documents stay."""
