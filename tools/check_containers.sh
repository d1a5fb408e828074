#!/bin/sh
# Print everything that the container tests need and this machine does not have.
missing=0

lacks() {
    echo "missing: $1" >&2
    echo "    on Debian or Ubuntu: apt-get install $2" >&2
    missing=1
}

for pair in buildah:buildah debootstrap:debootstrap docker-registry:docker-registry ip:iproute2 nsenter:util-linux; do
    command -v "${pair%%:*}" >/dev/null || lacks "${pair%%:*}" "${pair##*:}"
done
if [ "$(id -u)" -ne 0 ]; then
    echo "missing: root permissions, for containers and debootstrap" >&2
    missing=1
fi
exit $missing
