"""What lies in the folder of a store beside its database.

Its lock (`store_lock`), the note of a run that is not finished (`unfinished_note`), the contents of files (`contents`)
and which file had which (`kept_digests`); `store_folder` makes the folder itself.
"""
