/* The OpenMP runtime's barrier: prints the seconds of CALLS barriers of THREADS threads. Arguments: CALLS THREADS. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

int main(int count, char **words)
{
    if (count != 3)
        return 2;
    long calls = atol(words[1]);
    int threads = atoi(words[2]);
    double began = 0, ended = 0;
    int present = 0;
#pragma omp parallel num_threads(threads)
    {
#pragma omp barrier
#pragma omp master
        {
            present = omp_get_num_threads();
            began = omp_get_wtime();
        }
        for (long call = 0; call < calls; call++) {
#pragma omp barrier
        }
#pragma omp master
        ended = omp_get_wtime();
    }
    if (present != threads) {
        fprintf(stderr, "%d threads instead of %d\n", present, threads);
        return 1;
    }
    printf("%.9f\n", ended - began);
    return 0;
}
