"""The machine as an array: its algebra, its probe, its limits."""
