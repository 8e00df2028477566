"""Terrace for Spack, built from a folder of sources:
    spack repo create ours && mkdir -p ours/packages/terrace && cp jobs/packaging/spack/package.py ours/packages/terrace/ && spack repo add ours
    spack dev-build -d . terrace@main +cuda cuda_arch=90a"""
from spack.package import *


class Terrace(CMakePackage, CudaPackage):
    """Reduces, factors, inverts and solves big matrices on many GPUs: GF(2), band, dense, conjugate gradients; program and library."""

    license("BSD-3-Clause")

    version("main")  # dev-build

    variant("shared", default=True, description="libterrace.so; without it libterrace.a")
    variant("metis", default=True, description="Parts of reordered sparse matrices by METIS too")
    variant("tests", default=False, description="Build the tests")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.22:", type="build")
    depends_on("mpi@3:")
    depends_on("hdf5@1.10: +mpi")
    depends_on("libdeflate")
    depends_on("openblas@0.3.20: threads=pthreads")
    depends_on("cli11@2.1:")
    depends_on("fmt@8:")
    depends_on("nlohmann-json@3.10:")
    depends_on("hwloc@2:")
    depends_on("metis@5.1:", when="+metis")
    depends_on("nccl", when="+cuda")
    depends_on("cuda@12:", when="+cuda")
    depends_on("catch2@2.13:", when="+tests")

    def cmake_args(self):
        arguments = [self.define_from_variant("TERRACE_CUDA", "cuda"),
                     self.define_from_variant("BUILD_SHARED_LIBS", "shared"), self.define_from_variant("TERRACE_TESTS", "tests"),
                     self.define_from_variant("TERRACE_METIS", "metis")]
        if self.spec.satisfies("+cuda"):
            arguments.append(self.define("CMAKE_CUDA_ARCHITECTURES", self.spec.variants["cuda_arch"].value))
        return arguments

    @run_after("install")
    @on_package_attributes(run_tests=True)
    def starts(self):
        Executable(self.prefix.bin.terrace)("--version")
