"""Stage `remote`: list the objects of one source in object storage or on a web server."""
