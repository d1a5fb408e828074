#!/bin/sh
# sysroot.sh FOLDER ARCHITECTURE GCC: the C library of Debian 11 (glibc 2.31) and the C++ library of its compiler (gcc 10) for
# an architecture such as amd64, unpacked into FOLDER. What is linked with them runs on every Linux with glibc 2.31 or later.
# The packages come from the mirror of this machine's own apt sources. Needs apt and dpkg-deb; not root, and nothing is
# installed. GCC is the compiler for that architecture.
set -eu
target=$1
architecture=$2
gcc=$3
suite=bullseye
test -e "$target/.ready" && exit 0
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || {
    echo "the wheels are linked with Debian 11's C library, which this machine cannot unpack: apt-get and dpkg-deb are missing" >&2
    exit 1
}
mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources 2>/dev/null |
    sed -n 's/^URIs: *\([^ ]*\).*/\1/p; s/^deb  *\(\[[^]]*\] *\)\{0,1\}\([^ ]*\) .*/\2/p' | grep -m 1 '/debian/*$') || {
    echo "no mirror of Debian stands in /etc/apt: the C library of Debian 11 cannot be had" >&2
    exit 1
}
rm -rf "$target"
mkdir -p "$target/apt/lists/partial" "$target/apt/cache/archives/partial" "$target/root"
target=$(cd "$target" && pwd)
: >"$target/apt/status"
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" >"$target/apt/sources.list"
apt() {
    apt-get -qq -o Dir::Etc::sourcelist="$target/apt/sources.list" -o Dir::Etc::sourceparts=/dev/null \
        -o Dir::State::lists="$target/apt/lists" -o Dir::State::status="$target/apt/status" \
        -o Dir::Cache="$target/apt/cache" -o Debug::NoLocking=1 -o APT::Sandbox::User= \
        -o APT::Architecture="$architecture" -o APT::Architectures::="$architecture" "$@"
}
apt update
(cd "$target/apt" && apt download libc6 libc6-dev linux-libc-dev libcrypt-dev libgcc-s1 libgcc-10-dev libstdc++6 libstdc++-10-dev 2>&1)
for package in "$target"/apt/*.deb; do
    dpkg-deb -x "$package" "$target/root"
done
# Links are relative then, and the folder can be moved.
find "$target/root" -type l -lname '/*' | while read -r link; do
    ln -sfn "$(realpath -m --relative-to="$(dirname "$link")" "$target/root$(readlink "$link")")" "$link"
done
# gcc 12's own unwinder wants a function of glibc 2.35.
mkdir "$target/unwinder"
cp "$target"/root/usr/lib/gcc/*-linux-gnu/10/libgcc_eh.a "$target/unwinder"
"$gcc" -O2 -fPIC -c "$(dirname "$0")/old_glibc.c" -o "$target/old_glibc.o"
rm -rf "$target/apt"
touch "$target/.ready"
