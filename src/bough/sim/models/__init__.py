"""Models that stand by themselves: of run times, data diffusion, caches that cooperate, a distributed index."""
