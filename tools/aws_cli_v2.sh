#!/bin/sh
# Version 2 of the AWS command line, which no index of Python packages has, unpacked from the system's packages into a
# folder. Nothing is installed.
#
#     sh tools/aws_cli_v2.sh FOLDER        makes FOLDER/aws, or says why it cannot
set -eu
mkdir -p "$1"
folder=$(cd "$1" && pwd)
version=$(apt-cache policy awscli 2>/dev/null | sed -n 's/^ *Candidate: //p' || true)
case $version in
2.*) ;;
*)
    echo "AWS CLI 2: the package awscli of this system is ${version:-not known (apt-get update?)}; its tests are left out"
    exit 0
    ;;
esac
rm -rf "$folder/packages" "$folder/root"
mkdir "$folder/packages"
cd "$folder/packages"
apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances awscli |
    grep -E '^(awscli|python3-)' | xargs apt-get -qq -o APT::Sandbox::User=root download
for package in *.deb; do
    dpkg-deb -x "$package" "$folder/root"
done
cat >"$folder/aws" <<END
#!/bin/sh
PYTHONPATH='$folder/root/usr/lib/python3/dist-packages' exec /usr/bin/python3 '$folder/root/usr/bin/aws' "\$@"
END
chmod +x "$folder/aws"
"$folder/aws" --version
