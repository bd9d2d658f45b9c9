"""Recurrent layers beside their peers."""
