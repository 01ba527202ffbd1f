"""Stage `acquire`: bring in the sources from outside, and hash them."""
