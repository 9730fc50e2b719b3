"""A flow of one's own, whose tasks wait for runs of headway: stage, train, pick, evaluate."""
