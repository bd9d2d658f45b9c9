"""The end of an epilogue as a kernel of its own, on the library's product in place, one pass."""
