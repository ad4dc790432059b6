"""Build the compiled loops of exact search, if there is a C compiler; pyproject.toml has the rest."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel

FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))  # which has no limited API
OLDEST = "cp311"  # Python whose limited API has the buffer protocol
# No fused operations: scores have the same bits everywhere.
FLAGS = ["/O2", "/fp:precise"] if sys.platform == "win32" else ["-O3", "-funroll-loops", "-ffp-contract=off"]


class Wheel(bdist_wheel):
    """A wheel of all Pythons and systems if the loops could not be compiled."""

    def get_tag(self) -> tuple[str, str, str]:
        contents = Path(self.bdist_dir)
        if contents.is_dir() and not self.root_is_pure and not any(contents.rglob("_kernels.*")):
            print("vocable: this wheel has no compiled loops, since no C compiler built them: its searches are slower")
            self.root_is_pure = True
        return super().get_tag()


kernels = Extension(
    "vocable.indexes._kernels",
    ["src/vocable/indexes/_kernels.c"],
    depends=["src/vocable/indexes/_loops.h"],
    define_macros=[] if FREE_THREADED else [("Py_LIMITED_API", "0x030B0000")],
    extra_compile_args=FLAGS,
    optional=True,
    py_limited_api=not FREE_THREADED,
)
setup(
    ext_modules=[kernels],
    cmdclass={"bdist_wheel": Wheel},
    options={} if FREE_THREADED else {"bdist_wheel": {"py_limited_api": OLDEST}},
)
