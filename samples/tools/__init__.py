"""headway from other tools: each of these submits runs to the site of `headway login`."""
