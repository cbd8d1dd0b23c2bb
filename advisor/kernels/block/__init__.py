"""A whole transformer block: RMSNorm, projections, attention, residual; RMSNorm, gated MLP, residual."""
