CREATE DATABASE prefect; -- the Prefect server's own, beside the ledger
