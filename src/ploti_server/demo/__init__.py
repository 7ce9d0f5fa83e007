"""The demo's data and story."""
