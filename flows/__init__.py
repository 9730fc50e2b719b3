"""What happens, in order: Prefect flows, thin."""
