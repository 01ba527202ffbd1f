"""Stage `acquire`: bring in and hash what comes from outside."""
