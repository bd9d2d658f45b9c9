"""Programs that judge the tuner's parts against recorded tables and other tools."""
