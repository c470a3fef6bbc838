"""How bytes travel: `local` links, copies and digests files on one machine."""
