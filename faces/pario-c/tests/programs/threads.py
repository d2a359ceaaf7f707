"""A Python program whose library has an OpenMP runtime that is loaded locally. Arguments: libpario.so, the library."""
import ctypes
import os
import sys

pario = ctypes.CDLL(sys.argv[1])
region = ctypes.CDLL(sys.argv[2])
fd = ctypes.c_int(-1)
failures = 0
failures += pario.omp_file_open_all(ctypes.byref(fd), b"file", os.O_CREAT | os.O_RDWR, 0o644) != 0
failures += pario.omp_file_write_all(b"<", 1, fd, 1) != 0
failures += region.write_by_region(fd, 4, ctypes.c_char(b"a")) != 0
failures += pario.omp_file_write_all(b">", 1, fd, 1) != 0
failures += pario.omp_file_close_all(fd) != 0
failures += pario.omp_file_close_all(fd) != -1
print(failures, "failures")
sys.exit(failures != 0)
