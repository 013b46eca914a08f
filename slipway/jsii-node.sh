#!/bin/sh
# Node for CDK's library with a heap of 512 MB at most: jsii's own option allows 4 GB, so that little is given back before.
# Of two options of one name Node takes the last. Usage: JSII_NODE=jsii-node.sh; jsii starts it as node OPTION PROGRAM
option=$1
shift
exec node "$option" --max-old-space-size=512 "$@"
