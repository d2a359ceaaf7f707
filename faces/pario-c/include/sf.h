/* Shared files: one file for all processes of a program, on the disks of all its nodes. Guide: docs/guide/distant.md.
 *
 *     #include <sf.h>                                          cc app.c $(pario env --compile); pario run -n 4 -- ./a.out
 *     SF_Create("/local/scratch/vectors", 1e12, 1e11, 30720, &file);   all processes; 30 KB is the usual request
 *     SF_Write(file, offset, bytes, record, &request);         any process, any place; returns at once
 *     SF_Wait(&request);                                       now every process reads it
 *     SF_Destroy(file);                                        nothing is left
 *
 * Names, types and numbers are those that Global Arrays has published. A result of 0 is success; SF_Errmsg has the sentence of
 * any other. SF_Create, SF_Create_suffix and SF_Destroy are collective, all others are not. Processes keep out of each other's
 * bytes themselves. A process that MPI started calls pario_group_from_comm of pario_group.h first.
 */
#ifndef SF_H
#define SF_H

#ifdef __cplusplus
extern "C" {
#endif

/* Sizes and offsets: whole numbers up to 2^53. */
typedef double SFsize_t;

#define SF_SEEKFAIL (-2000)  /* an offset, length or address that is not possible */
#define SF_WRITFAIL (-1999)
#define SF_READFAIL (-1997)
#define SF_HANDFAIL (-1994)  /* not a handle or request, or closed */
#define SF_MODEFAIL (-1993)  /* a write after SF_Rwtor */
#define SF_OPENFAIL (-1990)
#define SF_DELFAIL (-1987)
#define SF_LONGFAIL (-1983)  /* the name is too long */
#define SF_EOFFAIL (-1977)   /* the read ends beyond the end of the file */
#define SF_FSYNCFAIL (-1976)
#define SF_UNKNFAIL (-1975)

/* Limits are hints; req_size is the usual request, -1 if unknown. The file has no name. */
int SF_Create(char *fname, SFsize_t size_hard_limit, SFsize_t size_soft_limit, SFsize_t req_size, int *handle);
/* The same with named components, FNAME.SUFFIX.RANK, that SF_Destroy removes and that a later run may create again. */
int SF_Create_suffix(char *fname, SFsize_t size_hard_limit, SFsize_t size_soft_limit, SFsize_t req_size, int *handle,
                     int suffix);
int SF_Destroy(int handle);
/* From now on this process only reads. */
int SF_Rwtor(int handle);
/* For this process only: after SF_Close until SF_Open accesses are refused. */
int SF_Open(int handle);
int SF_Close(int handle);
/* Puts what was written on stable storage. */
int SF_Fsync(int handle);
/* The buffer is left alone until the wait. */
int SF_Write(int handle, SFsize_t offset, SFsize_t bytes, char *buffer, int *req_id);
int SF_Read(int handle, SFsize_t offset, SFsize_t bytes, char *buffer, int *req_id);
/* A finished request is -1; waiting for it again succeeds. */
int SF_Wait(int *req_id);
/* 1 if at least one request failed. */
int SF_Waitall(int *list, int num);
/* What happened, where and how much, in at most 79 characters; pario_error of pario.h has all of it. */
void SF_Errmsg(int code, char *msg);

#ifdef __cplusplus
}
#endif
#endif
