#include <stdlib.h>
#include <string.h>

#include "primes.h"
#include "tally.h"

static void *checked(void *memory)
{
    if (!memory) {
        fputs("tally: out of memory\n", stderr);
        exit(1);
    }
    return memory;
}

void table_init(struct table *table)
{
    table->step = 0;
    table->used = 0;
    table->size = primes[0];
    table->entries = checked(calloc(table->size, sizeof *table->entries));
}

static struct entry *find(struct entry *entries, size_t size, const char *word)
{
    size_t at = hash_word(word) % size;
    while (entries[at].word && strcmp(entries[at].word, word) != 0)
        at = (at + 1) % size;
    return &entries[at];
}

static void grow(struct table *table)
{
    size_t size = primes[table->step + 1];
    struct entry *entries = checked(calloc(size, sizeof *entries));
    for (size_t i = 0; i < table->size; i++)
        if (table->entries[i].word)
            *find(entries, size, table->entries[i].word) = table->entries[i];
    free(table->entries);
    table->entries = entries;
    table->size = size;
    table->step++;
}

void table_add(struct table *table, const char *word)
{
    if (2 * table->used > table->size && table->step + 1 < sizeof primes / sizeof *primes)
        grow(table);
    struct entry *entry = find(table->entries, table->size, word);
    if (!entry->word) {
        entry->word = checked(strdup(word));
        table->used++;
    }
    entry->count++;
}

void table_free(struct table *table)
{
    for (size_t i = 0; i < table->size; i++)
        free(table->entries[i].word);
    free(table->entries);
}
