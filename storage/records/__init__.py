"""Records in files: the reader of all formats, documents, labeled sets, unlabeled texts, selection of documents."""
