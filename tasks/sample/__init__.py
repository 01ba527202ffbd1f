"""Stage `sample`: documents drawn, filtered, deduplicated and split into sentences."""
