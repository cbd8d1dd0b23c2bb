"""One self-contained HTML page on what was tuned on a machine: read, digested, drawn, written; one module each."""
