#!/bin/sh
# As upstream's: makes ./configure; without autotools it does not exist.
set -e
autoreconf --version >/dev/null
cp configure.in configure
chmod +x configure
