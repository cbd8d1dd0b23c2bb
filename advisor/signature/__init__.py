"""The machine's signature: read bandwidth, fork-join cost and peak flop rate, measured by `advisor probe --bench`."""
