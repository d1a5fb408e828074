#!/bin/sh
# Says what the container tests lack on this machine, all at once.
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
    echo "missing: root, which containers and debootstrap need" >&2
    missing=1
fi
exit $missing
