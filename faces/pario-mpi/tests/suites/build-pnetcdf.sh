#!/bin/sh
# Builds PnetCDF and its C test programs from its sources: SOURCES TARGET MPI. What is built is kept.
set -eu
sources=$1 target=$2 mpi=$3
[ -e "$target/built" ] && exit
mkdir -p "$target"
cp -r "$sources" "$target/sources"
cd "$target/sources"
autoreconf -i
./configure --disable-fortran --disable-cxx --disable-shared --enable-static MPICC="mpicc.$mpi" CFLAGS="-O1 -w"
make -j2
make -j2 tests
touch "$target/built"
