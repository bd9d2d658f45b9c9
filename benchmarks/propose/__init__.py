"""What proposals are worth: proposers replayed over recorded tables."""
