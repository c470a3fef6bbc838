"""How bytes travel: `local` into and out of a `content_store`, `folder_archive` of folders, `remote_files` of URLs.

Between executors: `spread_plan` says who takes a content from whom, `peer_directory` who can be asked, and how.
"""
