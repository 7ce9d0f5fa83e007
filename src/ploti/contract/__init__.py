"""What server and clients agree on: events, errors, resources, files, values, digest.

Standard library only (`typing_extensions` on Python 3.11), so that a bare install stays light.
"""
