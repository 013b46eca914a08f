"""The GPU suite: programs that find GPUs which compute wrong, slowly or unsteadily, and slow storage.

Each program runs by `python FILE` in any image with torch. The package imports only torch and the standard library.
"""
