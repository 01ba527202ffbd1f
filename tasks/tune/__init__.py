"""Stage `tune`: few-shot tuning and evaluation on the registered datasets."""
