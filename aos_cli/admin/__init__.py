"""The operator's side of principals, groups, capabilities and quotas: requests, amounts, questions."""
