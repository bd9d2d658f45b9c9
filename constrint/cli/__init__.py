"""The `constrint` command: one file per sub-command, everything heavy imported when used."""
