"""The gated MLP of a transformer block: (silu(x Wg) * (x Wu)) Wd."""
