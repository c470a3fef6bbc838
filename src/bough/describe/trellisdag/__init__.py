"""TrellisDAG's files: description scripts, Makefiles, flat scripts, and the stages of their expansion."""
