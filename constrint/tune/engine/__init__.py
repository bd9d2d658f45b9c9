"""Where trials run: processes of this machine, one for each GPU, or those of many machines."""
