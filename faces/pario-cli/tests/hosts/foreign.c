/* Loaded before the C library into a test program, to make it what Rust programs are not by themselves. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <unistd.h>

typedef void (*handler)(int);

/* The Rust runtime ignores SIGPIPE before `main`. C and Fortran programs do not, and those load Pario too. */
handler signal(int number, handler wanted)
{
    if (number == SIGPIPE)
        return SIG_DFL;
    handler (*real)(int, handler) = (handler (*)(int, handler))dlsym(RTLD_NEXT, "signal");
    return real(number, wanted);
}

/* Safe Rust cannot fork. It can ask for its parent: here, that makes a child. */
pid_t getppid(void)
{
    return fork();
}
