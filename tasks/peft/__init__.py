"""Conversion of prompts to adapters of Hugging Face PEFT, and back."""
