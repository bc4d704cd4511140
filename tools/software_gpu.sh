#!/usr/bin/env bash
# Prepare a software Vulkan GPU (Mesa's lavapipe, 24 or newer) and print the lines that select it:
#
#     eval "$(tools/software_gpu.sh)"
#
# For Debian 12 and 13; needs apt and a mirror but not root, and installs nothing: the packages the
# machine lacks are unpacked into .cache/lavapipe of this checkout. Debian 12's own Mesa (22.3)
# serves wgpu but not Dawn, so there the package comes from bookworm-backports. The mirror is the
# one in the machine's own apt sources. Run again it downloads nothing.
set -euo pipefail

folder="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/.cache/lavapipe"

fail() {
    echo "software_gpu: $1" >&2
    echo "false  # tools/software_gpu.sh failed: $1"  # so that eval fails as well
    exit 1
}

# The Mesa that is installed, if it is new enough for Dawn.
installed_driver() {
    local version
    version="$(dpkg-query -W -f '${Version}' mesa-vulkan-drivers 2>/dev/null)" || return 1
    dpkg --compare-versions "$version" ge 24 || return 1
    dpkg-query -W libvulkan1 >/dev/null 2>&1 || return 1
    compgen -G '/usr/share/vulkan/icd.d/lvp_icd*.json' | head -n 1
}

# A list file of our own: the machine's Debian mirror, and its backports where they are needed.
write_sources() {
    local codename mirror keyring=""
    codename="$(. /etc/os-release && echo "${VERSION_CODENAME:-}")"
    # apt reads both forms of its sources (one-line and deb822) better than we would.
    mirror="$(apt-get indextargets --format '$(RELEASE) $(REPO_URI)' 'Created-By: Packages' |
        awk -v name="$codename" '($1 == name || $1 == "stable" || $1 == "oldstable") &&
            $2 !~ /^cdrom:/ { print $2; exit }')"
    [ -n "$mirror" ] || fail "apt's sources name no mirror of Debian '$codename'"
    for file in /usr/share/keyrings/debian-archive-keyring.{pgp,gpg}; do
        [ -e "$file" ] && keyring="[signed-by=$file]" && break
    done
    echo "deb $keyring $mirror $codename main"
    if [ "$codename" = bookworm ]; then
        echo "deb $keyring $mirror bookworm-backports main"
    fi
}

download_and_unpack() {
    local scratch="$folder.part" release=() archive
    rm -rf "$scratch"
    mkdir -p "$scratch"/{lists/partial,cache/archives/partial,root}
    write_sources >"$scratch/sources.list" || { tail -n 1 "$scratch/sources.list"; exit 1; }
    grep -q backports "$scratch/sources.list" && release=(-t bookworm-backports)
    local options=(
        -q -o Dir::Etc::sourcelist="$scratch/sources.list" -o Dir::Etc::sourceparts=/dev/null
        -o Dir::State::Lists="$scratch/lists" -o Dir::Cache="$scratch/cache"
        -o Acquire::Languages=none -o Acquire::Retries=3 -o Acquire::Check-Valid-Until=false
        -o Debug::NoLocking=true           # without root apt's locks are not ours to take
        -o APT::Sandbox::User="$(id -un)"  # the user _apt may not reach this folder
    )
    {
        apt-get "${options[@]}" update &&
            apt-get "${options[@]}" install --download-only --yes --no-install-recommends \
                "${release[@]}" mesa-vulkan-drivers libvulkan1
    } >"$scratch/log" 2>&1 </dev/null || { tail -n 5 "$scratch/log" >&2; fail "apt could not fetch Mesa"; }
    for archive in "$scratch"/cache/archives/*.deb; do
        case "${archive##*/}" in
            libc6_* | libc-bin_*) ;;  # the C library must be the running machine's own
            *) dpkg -x "$archive" "$scratch/root" ;;
        esac
    done
    rm -rf "$scratch"/{lists,cache} "$folder"
    mv "$scratch" "$folder"  # the last step: a folder of this name is complete
}

if ! icd="$(installed_driver)"; then
    mkdir -p "${folder%/*}"
    exec 9>"$folder.lock"
    flock 9
    [ -d "$folder/root" ] || download_and_unpack
    libraries="$(find "$folder/root" -name libvulkan_lvp.so -printf '%h' -quit)"
    [ -n "$libraries" ] || fail "the packages in $folder hold no lavapipe; remove the folder and run again"
    icd="$folder/lvp_icd.json"
    # The driver's own json gives a path under /usr, where nothing was installed.
    sed "s|\"library_path\": *\"[^\"]*\"|\"library_path\": \"$libraries/libvulkan_lvp.so\"|" \
        "$folder"/root/usr/share/vulkan/icd.d/lvp_icd*.json >"$icd.$$"
    mv "$icd.$$" "$icd"
    path="$libraries"
    older="$folder/root/lib/${libraries##*/}"  # where Debian 12 has some libraries
    [ -d "$older" ] && path="$path:$older"
    printf 'export LD_LIBRARY_PATH=%q${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}\n' "$path"
fi
printf 'export VK_ICD_FILENAMES=%q\n' "$icd"
printf 'export VK_DRIVER_FILES=%q\n' "$icd"  # the newer name, which wins where both are set
# Tests compile a thousand kernels and run each for milliseconds. Vectors of four lanes take the
# compiler a third of the time of AVX2's eight, and no optimisation a fifth less still. So kernels see
# subgroups of four; what differs in eight: tests/ops/in_eights.py.
printf 'export LP_NATIVE_VECTOR_WIDTH="${LP_NATIVE_VECTOR_WIDTH-128}"\n'
printf 'export GALLIVM_PERF="${GALLIVM_PERF-nopt}"\n'
