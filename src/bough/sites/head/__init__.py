"""The host that a site's pilots are started from: how it is reached, what is brought there, what is done there."""
