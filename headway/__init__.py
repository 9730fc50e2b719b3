"""headway: a team's GPU servers, shared without getting in each other's way."""
