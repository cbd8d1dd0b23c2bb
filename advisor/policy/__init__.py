"""From measurements to tables, and from tables to launch lines."""
