"""Programs as plain processes, for machines without a container engine."""
