"""The stages of the pipeline, a package for each, with the parameters and the table of methods that they share."""
