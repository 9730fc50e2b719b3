"""A session: a small web service for one user."""
