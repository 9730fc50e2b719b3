"""headway from other tools: each of these hands in runs to the site of `headway login`."""
