#!/bin/sh
# Unpack version 2 of the AWS command line, which is not on PyPI, from the system's packages into a folder. Nothing is
# installed.
#
#     sh tools/aws_cli_v2.sh FOLDER        make FOLDER/aws, or print why that fails and keep the existing one
set -eu
mkdir -p "$1"
folder=$(cd "$1" && pwd)

skip() {
    echo "AWS CLI 2: $1; its tests are skipped" >&2
    rm -rf "$folder/new"
    exit 0
}

version=$(apt-cache policy awscli 2>/dev/null | sed -n 's/^ *Candidate: //p' || true)
case $version in
2.*) ;;
*) skip "the package awscli of this system is ${version:-not known (apt-get update?)}" ;;
esac
rm -rf "$folder/new"
mkdir -p "$folder/new/packages"
cd "$folder/new/packages"
apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances awscli |
    grep -E '^(awscli|python3-)' | xargs apt-get -qq -o APT::Sandbox::User=root download ||
    skip "its packages cannot be downloaded: see the error above (no network, or old package lists: apt-get update)"
for package in *.deb; do
    dpkg-deb -x "$package" "$folder/new/root"
done
cd "$folder"
rm -rf root aws
mv new/root root
rm -rf new
cat >aws.new <<END
#!/bin/sh
PYTHONPATH='$folder/root/usr/lib/python3/dist-packages' exec /usr/bin/python3 '$folder/root/usr/bin/aws' "\$@"
END
chmod +x aws.new
./aws.new --version
mv aws.new aws
