#include <ctype.h>

#include "tally.h"

enum { LONGEST = 255 };

int read_words(FILE *file, struct table *table)
{
    char word[LONGEST + 1];
    int length = 0, letter;
    while ((letter = getc(file)) != EOF) {
        if (isalnum(letter) && length < LONGEST) {
            word[length++] = (char)tolower(letter);
        } else if (length) {
            word[length] = '\0';
            table_add(table, word);
            length = 0;
        }
    }
    if (length) {
        word[length] = '\0';
        table_add(table, word);
    }
    return ferror(file) ? -1 : 0;
}
