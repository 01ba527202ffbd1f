"""One run of the pipeline: the Prefect flow, how a stage is executed, and what a person sees of it."""
