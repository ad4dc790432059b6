"""The loops of exact search: compiled, or in NumPy if the extension module was not built; both give the same bits.

`exact_numpy` describes their arguments. Compiled loops run without the interpreter's lock and write only to arrays in
their arguments, so threads can share the work.
"""

from __future__ import annotations

import logging

try:
    from vocable.indexes._kernels import count_matches, find_postings, in_order, rescore, score_candidates, search
except ImportError:
    from vocable.indexes.exact_numpy import count_matches, find_postings, in_order, rescore, score_candidates, search

    logging.getLogger(__name__).warning(
        "vocable was installed without its compiled loops: searches of large indexes take longer; "
        "install a wheel, or install it again with a C compiler (gcc, clang or MSVC)"
    )

__all__ = ["count_matches", "find_postings", "in_order", "rescore", "score_candidates", "search"]
