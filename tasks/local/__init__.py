"""Stage `local`: list the files of one local source."""
