#include <stdlib.h>
#include <string.h>

#include "tally.h"

static int by_count(const void *left, const void *right)
{
    const struct entry *a = left, *b = right;
    if (a->count != b->count)
        return a->count < b->count ? 1 : -1;
    return strcmp(a->word, b->word);
}

void sort_entries(struct entry *entries, size_t count)
{
    qsort(entries, count, sizeof *entries, by_count);
}
