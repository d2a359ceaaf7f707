/* Appends lines of different lengths to one file, by O_APPEND. argv: the file, this appender's number, how many. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    char line[512];
    if (argc < 4)
        return 2;
    int number = atoi(argv[2]), lines = atoi(argv[3]);
    int fd = open(argv[1], O_WRONLY | O_CREAT | O_APPEND, 0644);
    if (fd < 0) {
        perror(argv[1]);
        return 1;
    }
    for (int at = 0; at < lines; at++) {
        int fill = (number * 31 + at * 17) % 257;
        int length = snprintf(line, sizeof line, "%d %d %.*s\n", number, at, 0, "");
        memset(line + length - 1, 'x', fill);
        line[length - 1 + fill] = '\n';
        length += fill;
        if (write(fd, line, length) != length) {
            perror("write");
            return 1;
        }
    }
    if (close(fd) != 0) {
        perror("close");
        return 1;
    }
    return 0;
}
