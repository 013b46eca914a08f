"""The GPU suite: programs that find GPUs which compute wrong, slowly or unsteadily, and slow storage.

Each program runs by `python FILE` in any image with torch and NumPy. The package imports nothing else but the standard
library.
"""
