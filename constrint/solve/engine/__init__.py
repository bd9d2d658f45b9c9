"""The native search: from a problem to tables of solutions, on the compiled core or on numpy."""
