"""SDK of Ploti Data Feeds."""
