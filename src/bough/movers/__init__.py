"""How bytes travel: `local` between files and a `content_store`, `folder_archive` of folders, `remote_files` at URLs."""
