"""How many blocks one SM holds at once; each vendor's own rules stand in its folder under `vendors/`."""
