"""Programs that are sent along and run on a node, where nothing of headway is installed."""
