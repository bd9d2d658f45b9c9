"""The tasks that come with the package; each file registers one."""
