"""What public calls cost, as a user makes them from plain Python."""
