/* tally: how often each word occurs in files, or in standard input. */
#include "tally.h"

int main(int argc, char **argv)
{
    struct table table;
    int status = 0;
    table_init(&table);
    if (argc < 2)
        status = read_words(stdin, &table) != 0;
    for (int i = 1; i < argc; i++) {
        FILE *file = fopen(argv[i], "r");
        if (!file || read_words(file, &table) != 0) {
            perror(argv[i]);
            status = 1;
        }
        if (file)
            fclose(file);
    }
    report(&table, stdout);
    table_free(&table);
    return status;
}
