"""Recurrent layers in CUDA C++ whose weights stay on the chip for the whole sequence."""
