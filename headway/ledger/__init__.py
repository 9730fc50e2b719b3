"""The ledger: every SQL statement of headway is in this package."""
