"""Prompts to adapters of Hugging Face PEFT, and back."""
