#include <stdlib.h>

#include "tally.h"

void report(const struct table *table, FILE *file)
{
    struct entry *all = malloc((table->used + 1) * sizeof *all);
    size_t count = 0;
    if (!all)
        return;
    for (size_t i = 0; i < table->size; i++)
        if (table->entries[i].word)
            all[count++] = table->entries[i];
    sort_entries(all, count);
    for (size_t i = 0; i < count; i++)
        fprintf(file, "%lu %s\n", all[i].count, all[i].word);
    free(all);
}
