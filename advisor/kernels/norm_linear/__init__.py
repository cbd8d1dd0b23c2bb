"""RMSNorm with the linear projection that follows it."""
