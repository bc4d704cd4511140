#!/bin/sh
# Runs oscine in the container. Some versions of NVIDIA's container toolkit provide the driver's
# library without the manifest by which Vulkan finds it; the image's own is added then.
set -eu
if ! ls /etc/vulkan/icd.d/nvidia* /usr/share/vulkan/icd.d/nvidia* >/dev/null 2>&1; then
    export VK_ADD_DRIVER_FILES="${VK_ADD_DRIVER_FILES:-/usr/local/share/oscine/nvidia_icd.json}"
fi
exec oscine "$@"
