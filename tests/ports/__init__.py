"""A fake for each port, and the contract that fakes and real adapters both pass."""
