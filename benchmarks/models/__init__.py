"""Blocks of language, vision and speech models, from the configurations of transformers, before and after the patch."""
