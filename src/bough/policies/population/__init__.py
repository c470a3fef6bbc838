"""Which members of a population need not go on, one file a rule."""
