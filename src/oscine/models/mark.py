"""What a file of speech says of itself, for programs to read: that it is synthetic, and its model.

It goes into the comment of each container, which every program that shows metadata shows. The name
of a voice is not in it: it may be a person's. C2PA's signed manifests would need a certificate of
whoever publishes the file and a library of 16 MB, so they are left to who publishes.
"""

from __future__ import annotations

import json
import os
from importlib.metadata import version

#: IPTC's term for what a trained model has made, which C2PA and others use too.
SOURCE_TYPE = "http://cv.iptc.org/newscodes/digitalsourcetype/trainedAlgorithmicMedia"


def speech_mark(model: str) -> str:
    """JSON that says that speech is synthetic, and what made it; `model`: its name, or the path of
    one, of which only the end is told."""
    if os.path.exists(model):
        model = os.path.basename(os.path.abspath(model))
    return json.dumps(
        {
            "synthetic": True,
            "digitalSourceType": SOURCE_TYPE,
            "software": f"oscine {version('oscine')}",
            "model": model,
        }
    )
