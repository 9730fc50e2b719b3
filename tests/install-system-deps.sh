#!/bin/sh
# Install what the tests need from the system, and the packages that are named: root on Debian.
# Elsewhere say what would be needed, and leave it; the tests that miss something skip with a reason.
set -eu

packages="docker.io tini iptables iproute2 postgresql chromium busybox-static gcc libc6-dev openmpi-bin prometheus slurm-wlm munge slurmdbd mariadb-server podman uidmap openssh-client rsync $*"

missing=""
for package in $packages; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q '^install ok installed$' \
        || missing="$missing $package"
done
if [ -z "$missing" ]; then
    echo "test-deps: nothing is missing"
    exit 0
fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "test-deps: not root on Debian, so nothing is installed; the tests would use:$missing"
    exit 0
fi

# Packages must not start their services: the tests start their own.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
    trap 'rm -f "$policy"' EXIT
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# shellcheck disable=SC2086  # a list of words
apt-get install -y -qq --no-install-recommends $missing
