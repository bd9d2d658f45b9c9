"""What was measured, kept: records, the store that holds them, and what is read from and written for other tools."""
