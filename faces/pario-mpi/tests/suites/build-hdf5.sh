#!/bin/sh
# Builds parallel tests of HDF5's sources against Debian's library: SOURCES TARGET MPI PROGRAM... What is built is kept.
set -eu
sources=$1 target=$2 mpi=$3
shift 3
mkdir -p "$target"
cd "$target"
compile() {
    "h5pcc.$mpi" -O1 -w -I"$target" -I"$sources/src" -I"$sources/test" "$@"
}
if [ ! -e libh5test.a ]; then
    printf 'const char *config_srcdir = ".";\n' >H5srcdir_str.h
    compile -c "$sources/test/h5test.c" "$sources/test/testframe.c" "$sources/test/cache_common.c"
    ar rcs libh5test.a h5test.o testframe.o cache_common.o
fi
for program in "$@"; do
    [ -x "$program" ] && continue
    parts=$program
    [ "$program" = testphdf5 ] && parts="testphdf5 t_dset t_file t_file_image t_mdset t_ph5basic t_coll_chunk t_span_tree
        t_chunk_alloc t_filter_read t_prop t_coll_md_read"
    set --
    for part in $parts; do
        set -- "$@" "$sources/testpar/$part.c"
    done
    compile -o "$program" "$@" libh5test.a
done
