"""A trace of jobs through the very same policy as on a site, on a simulated clock."""
