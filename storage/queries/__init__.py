"""DuckDB queries on the workspace: a view for each table, and the queries of the report."""
