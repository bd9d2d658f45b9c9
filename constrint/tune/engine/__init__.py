"""Engines run trials: in processes of this machine, one per GPU (`local`), or on a Ray cluster (`ray`), each a plug-in.

Ray earns its lines as the way out of one machine: the same trials on every GPU of a cluster, whatever machine is lost.
"""
