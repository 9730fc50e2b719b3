"""Hand-written digits: small enough for a test."""
