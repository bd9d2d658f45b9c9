"""The producer kernel for Hopper, in Gluon: one warp loads for all the others."""
