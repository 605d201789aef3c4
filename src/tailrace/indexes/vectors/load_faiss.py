"""Imports faiss with the code that suits the processor; import it from here, and nowhere else."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from tailrace.errors import InvalidError

# Faiss comes with an OpenBLAS that does not know many processors of the last years, and then
# multiplies matrices as if they were of 2004: building an index takes three times as long. It can
# be told which code to use, when it is loaded; numpy knows what the processor can do.
_CODE = "OPENBLAS_CORETYPE"
# The best first; newer versions of numpy name whole levels of x86.
_CODES = {
    **dict.fromkeys(("X86_V4", "AVX512_SKX"), "SkylakeX"),
    **dict.fromkeys(("X86_V3", "AVX2"), "Haswell"),
}


def _load() -> Any:
    can = np.show_config(mode="dicts").get("SIMD Extensions", {})
    there = {*can.get("baseline", ()), *can.get("found", ())}
    code = next((code for feature, code in _CODES.items() if feature in there), None)
    is_ours = code is not None and _CODE not in os.environ
    if is_ours:
        os.environ[_CODE] = str(code)
    try:
        import faiss
    except ImportError as error:
        raise InvalidError(
            "vector indexes need an extra: pip install 'tailrace[vector]'"
        ) from error
    finally:
        if is_ours:
            del os.environ[_CODE]
    return faiss


faiss: Any = _load()
