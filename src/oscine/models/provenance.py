"""Machine-readable provenance of synthetic speech, for the comment tag of an audio file.

Every program that shows metadata shows the comment of a container. The name of a voice is left
out, since it may be a person's. C2PA manifests are left to publishers: they need the publisher's
certificate and a library of 16 MB.
"""

from __future__ import annotations

import json
import os
from importlib.metadata import version

#: IPTC's term for media made by a trained model; C2PA and others use it too.
DIGITAL_SOURCE_TYPE = "http://cv.iptc.org/newscodes/digitalsourcetype/trainedAlgorithmicMedia"


def provenance_comment(model: str) -> str:
    """JSON which states that speech is synthetic and which model made it.

    `model`: a name or a path; of a path only the last component is included.
    """
    if os.path.exists(model):
        model = os.path.basename(os.path.abspath(model))
    return json.dumps(
        {
            "synthetic": True,
            "digitalSourceType": DIGITAL_SOURCE_TYPE,
            "software": f"oscine {version('oscine')}",
            "model": model,
        }
    )
