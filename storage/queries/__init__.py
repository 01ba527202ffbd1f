"""DuckDB queries on the workspace: a view for each dataset, and the queries of the report."""
