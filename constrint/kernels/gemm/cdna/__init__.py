"""The GEMM for AMD's CDNA3 and CDNA4 in Gluon: waves in two groups that take turns at matrix unit and memory."""
