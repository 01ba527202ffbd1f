"""Run the pipeline: the DAG as a Prefect flow, and the `supmer` command."""
