"""The descriptor kernel: tiles come and go through the TMA unit, on compute capability 9.0 and later."""
