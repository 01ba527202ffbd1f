"""A run of the pipeline: the Prefect flow, the execution of a stage, and the display of progress and outcomes."""
