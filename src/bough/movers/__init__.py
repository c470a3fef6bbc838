"""How bytes travel: `local` links, copies and digests files on one machine, into and out of a `content_store`."""
