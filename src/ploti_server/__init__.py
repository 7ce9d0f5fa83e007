"""Publisher and server of Ploti Data Feeds."""
