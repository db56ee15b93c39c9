"""The report of a study: statistics, tables, and one HTML page."""
