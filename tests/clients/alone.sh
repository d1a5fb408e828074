# Runs in a network namespace of its own whose only interface is the loopback: what would leave it has no route, which
# the kernel counts. Names of other hosts are asked for at an address of the documentation's (RFC 5737), so that a look-up
# is counted too. Arguments: the Python with the client, the client's script.
set -eu
ip link set lo up
echo "nameserver 192.0.2.1" > resolv.conf
mount --bind resolv.conf /etc/resolv.conf
refused() {
    awk '/^Ip: [0-9]/ { print $13 }' /proc/net/snmp
    awk '$1 == "Ip6OutNoRoutes" { print $2 }' /proc/net/snmp6
}
eval "$(smdp-launch local up)"
trap 'smdp-launch local down' EXIT
"$1" "$2"
echo "refused after the job:" $(refused)
"$1" -c "import socket; socket.getaddrinfo('sts.us-east-1.amazonaws.com', 443)" 2>/dev/null || true
echo "refused after a look-up:" $(refused)
