#!/bin/sh
# As upstream's: makes ./configure; without autotools there is none.
set -e
autoreconf --version >/dev/null
cp configure.in configure
chmod +x configure
