#!/usr/bin/env bash
# Prints the folder where built tools are kept between runs, outside of the
# checkout. It may be deleted at any time: everything in it is made again.
set -euo pipefail
echo "${RDMA_MULTICAST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/rdma-multicast}"
