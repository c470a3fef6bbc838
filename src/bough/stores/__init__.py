"""Where the journal, the memos and the jobs database are kept."""
