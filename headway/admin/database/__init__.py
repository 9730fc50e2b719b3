"""The PostgreSQL that headway itself starts for a site on one machine: ledger and Prefect's own."""
