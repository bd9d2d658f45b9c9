"""`constrint report`: `command` is the command; `questions` and `measurements` are what it asks, `writing` writes."""
