#!/usr/bin/env bash
# Run the README's two commands on a bare Debian and print how long each takes:
#
#     tools/chroot.sh [bookworm] [trixie]
#
# Both releases if none is named. Needs root, debootstrap, a mirror and 4 GB below TMPDIR. Each
# release is made afresh in a folder that is removed at the end; what is committed here is copied
# into it. How this machine reaches its mirrors comes along: proxies, pip's settings, certificates.
# SECOND names another second command, for instance 'make test TESTS=tests/text'.
set -euo pipefail

root="$(cd "$(dirname "$0")/.." && pwd)"
second="${SECOND:-make test}"
[ "$(id -u)" = 0 ] || { echo "chroot: only root may make one" >&2; exit 1; }
command -v debootstrap >/dev/null || { echo "chroot: apt install debootstrap first" >&2; exit 1; }

mirror="$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' |
    awk '/\/debian\/?$/ { print; exit }')"
first="$(sed -n '/^python3 -m venv .venv && /p' "$root/README.md" | head -n 1)"
[ -n "$first" ] || { echo "chroot: the README has no first command" >&2; exit 1; }

bare="$(mktemp -d "${TMPDIR:-/tmp}/oscine-chroot.XXXXXX")"
unmount() {
    for place in dev/pts dev/shm proc; do
        ! mountpoint -q "$bare/$place" || umount -l "$bare/$place"
    done
    rm -rf --one-file-system "$bare"
}
trap unmount EXIT

# What the README asks for on Debian, with what the machine's own settings name.
prepare() {
    debootstrap --variant=minbase "$1" "$bare" "${mirror:-http://deb.debian.org/debian}" \
        >"$root/.cache/chroot-$1.log" 2>&1 || { tail -n 5 "$root/.cache/chroot-$1.log" >&2; return 1; }
    mount -t proc proc "$bare/proc"
    mkdir -p "$bare/dev/shm"
    mount -t tmpfs tmpfs "$bare/dev/shm"
    mkdir -p "$bare/dev/pts"
    mount -t devpts -o ptmxmode=666 devpts "$bare/dev/pts"
    ln -sf pts/ptmx "$bare/dev/ptmx"
    cp -L /etc/resolv.conf "$bare/etc/resolv.conf"
    for file in /etc/hosts /etc/pip.conf ~/.config/pip/pip.conf /etc/apt/apt.conf.d/*proxy* \
        /usr/local/share/ca-certificates/*.crt; do
        [ ! -e "$file" ] || install -D -m 644 "$file" "$bare$file"
    done
    inside 'apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q install -y \
        --no-install-recommends python3 python3-venv ca-certificates make gcc libc6-dev' \
        >>"$root/.cache/chroot-$1.log" 2>&1
    mkdir "$bare/oscine"
    git -C "$root" archive HEAD | tar -x -C "$bare/oscine"
}

inside() {
    local kept=() name
    for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY PIP_INDEX_URL \
        PIP_EXTRA_INDEX_URL PIP_CERT SSL_CERT_FILE REQUESTS_CA_BUNDLE HF_ENDPOINT; do
        [ -z "${!name:-}" ] || kept+=("$name=${!name}")
    done
    chroot "$bare" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 "${kept[@]}" \
        OSCINE_REQUIRE_GPU=1 OSCINE_REQUIRE_WEIGHTS=1 bash -c "cd /oscine 2>/dev/null || cd / && $1" </dev/null
}

mkdir -p "$root/.cache"
[ "$#" -gt 0 ] || set -- bookworm trixie
for release in "$@"; do
    echo "== $release"
    prepare "$release"
    for command in "$first" "$second"; do
        began=$SECONDS
        inside "$command"
        echo "== $release: $((SECONDS - began)) s: $command"
    done
    unmount
    mkdir -p "$bare"
done
