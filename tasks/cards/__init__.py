"""Model cards: the README of every prompt that is written."""
