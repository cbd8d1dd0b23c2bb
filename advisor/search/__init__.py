"""From a machine and a kernel to measurements: space, search, race, log."""
