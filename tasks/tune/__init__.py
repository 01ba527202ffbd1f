"""Stage `tune`: few-shot tuning and evaluation, on the registered datasets or on a user's file."""
