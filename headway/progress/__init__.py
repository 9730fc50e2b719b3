"""Log lines become progress points."""
