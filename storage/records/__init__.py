"""Records in files: the reader of all formats, documents, datasets, unlabeled texts, selection of documents."""
