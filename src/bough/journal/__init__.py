"""The journal's format: facts to bytes and back, pure."""
