"""How well the estimators forecast, and the nightly refit."""
