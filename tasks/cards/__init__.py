"""Model cards: the README of each prompt that is written."""
