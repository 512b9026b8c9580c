"""Generate codecs of messages, and build the extensions.

Every module of the package that has a `.pxd` beside its `.py` is compiled.

The same `.py` runs without being compiled, so a machine without a C compiler gets the plain
package and one line that says so, and so does a free-threaded Python. Environment variables:

    REQUIRE_EXTENSIONS=1        a build without extensions is an error (wheels, CI)
    AIOKAFKA_NO_EXTENSIONS=1    do not try to compile
    AIOKAFKA_REPOSITORY_URL=URL the repository in the metadata, instead of git's remote `origin`
    AIOKAFKA_SANITIZE=NAMES     compile with gcc's or clang's -fsanitize=NAMES, for example
                                `address,undefined`; the sanitizer's runtime has to be preloaded
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
PACKAGE = "aiokafka"
REQUIRED = os.environ.get("REQUIRE_EXTENSIONS", "") not in ("", "0")
REFUSED = os.environ.get("AIOKAFKA_NO_EXTENSIONS", "") not in ("", "0") and not REQUIRED
# The extensions were never tested without the lock of the interpreter. Loading one that does not
# declare itself safe would bring the lock back for the whole process.
UNTESTED = bool(sysconfig.get_config_var("Py_GIL_DISABLED")) and not REQUIRED
SANITIZERS = os.environ.get("AIOKAFKA_SANITIZE", "")

# Types come from the .pxd alone: in the .py an annotation says what callers may pass (`bytes`
# includes its subclasses), not what C needs.
DIRECTIVES = {"language_level": 3, "annotation_typing": False, "embedsignature": False}


# Modules that loop over bytes. All others mostly call the C API of Python: with -O3 they take more
# than twice as long to compile, and are not faster.
LOOPS = ("aiokafka/partitioner", "aiokafka/protocol/primitives", "aiokafka/record/")


def compile_flags(source: str) -> list[str]:
    if sys.platform == "win32":
        return ["/O2"]
    if SANITIZERS:
        return ["-O1", "-g", "-fno-omit-frame-pointer", f"-fsanitize={SANITIZERS}"]
    # Debug symbols would double the time to compile and the size; gcc mistakes the type checks of
    # constants for reads out of bounds.
    return ["-O3" if source.startswith(LOOPS) else "-O1", "-g0", "-Wno-array-bounds"]


def find_extensions() -> list[Extension]:
    link_flags = [f"-fsanitize={SANITIZERS}"] if SANITIZERS else []
    paths = [path.with_suffix(".py") for path in sorted((ROOT / PACKAGE).rglob("*.pxd"))]
    sources = [path.relative_to(ROOT) for path in paths if path.exists()]
    return [
        Extension(
            ".".join(source.with_suffix("").parts),
            [source.as_posix()],
            extra_compile_args=compile_flags(source.as_posix()),
            extra_link_args=link_flags,
        )
        for source in sources
    ]


def say(message: str) -> None:
    print(f"{PACKAGE}: {message}", file=sys.stderr, flush=True)


class OptionalBuildExt(build_ext):
    """Build all extensions or none: they share C types, so some without the others are useless."""

    def finalize_options(self) -> None:
        try:
            from Cython.Build import cythonize

            self.distribution.ext_modules = cythonize(
                self.distribution.ext_modules,
                compiler_directives=DIRECTIVES,
                build_dir=os.path.join("build", "cython"),
            )
        except Exception as error:  # no Cython, or sources that it does not take
            self._give_up(error)
            self.distribution.ext_modules = []
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()

    def run(self) -> None:
        if not self.extensions:
            return
        try:
            super().run()
        except Exception as error:  # no compiler, no headers, a compiler that fails
            self._give_up(error)
            self._remove_outputs()
            self.extensions = []
        else:
            say(f"built {len(self.extensions)} extensions")

    def _give_up(self, error: Exception) -> None:
        if REQUIRED:
            raise error
        reason = str(error).splitlines()[0][:100] if str(error) else type(error).__name__
        say(f"the extensions were not built, the package will be pure Python ({reason} ...)")

    def _remove_outputs(self) -> None:
        for extension in self.extensions:
            for path in (
                self.get_ext_fullpath(extension.name),
                os.path.join(self.build_lib, self.get_ext_filename(extension.name)),
            ):
                if os.path.exists(path):
                    os.unlink(path)


def generate_codecs() -> None:
    """Write `aiokafka/protocol/_generated/`. Without it, a process compiles codecs on first use."""
    script = ROOT / "tools" / "generate_codecs.py"
    result = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    if result.returncode:
        if REQUIRED:
            raise SystemExit(result.stderr)
        reason = result.stderr.strip().rpartition("\n")[2][:100]
        say(f"no codecs were generated, they are compiled on first use ({reason})")


def project_urls() -> dict[str, str]:
    """Return the links for the metadata. They depend on where the repository is published."""
    repository = runpy.run_path(str(ROOT / "tools" / "repository.py"))
    found: dict[str, str] = repository["links"](repository["address"]())
    return found


# Before the packages are looked for: the generated modules are one of them.
generate_codecs()
setup(
    project_urls=project_urls(),
    ext_modules=[] if REFUSED or UNTESTED else find_extensions(),
    cmdclass={"build_ext": OptionalBuildExt},
)
