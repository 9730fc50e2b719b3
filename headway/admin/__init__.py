"""What the operator of a site does."""
