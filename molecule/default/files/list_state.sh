#!/bin/sh
# Everything that a deployment could leave on a node, one line a thing: files with mode, owner, size, time of change
# and target; units with their state and the time of their start.
set -eu
export LC_ALL=C
find /etc /home /opt /run/headroom /run/systemd/system /run/systemd/transient /usr/local /var/cache /var/lib \
    \( -path '/home/*/.ansible*' -o -path /var/lib/systemd \) -prune -o \
    -printf '%p %y %m %u:%g %s %T@ %l\n' 2>/dev/null | sort || true
systemctl show 'sglang-*' 'headroom-*' --property=Id,ActiveState,UnitFileState,ActiveEnterTimestamp
