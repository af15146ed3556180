"""A worker's side of tables of rows: handles in a model (table_handle.py, row_table.py), where rows come from
(row_source.py, row_caching.py), and what is read ahead (rows_ahead.py, prefetch.py)."""
