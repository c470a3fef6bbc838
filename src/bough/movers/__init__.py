"""How bytes travel: `local` into and out of a `content_store`, `folder_archive` of folders, `remote_files` of URLs."""
