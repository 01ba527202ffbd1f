"""Takedown of documents: forgetting them, purging earlier versions, and the certificate."""
