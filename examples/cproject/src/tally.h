/* Counts words: a hash table, a reader and a report. */
#ifndef TALLY_H
#define TALLY_H

#include <stddef.h>
#include <stdio.h>

struct entry {
    char *word;
    unsigned long count;
};

struct table {
    struct entry *entries;
    size_t size, used, step;
};

unsigned long hash_word(const char *word);
void table_init(struct table *table);
void table_add(struct table *table, const char *word);
void table_free(struct table *table);
int read_words(FILE *file, struct table *table);
void sort_entries(struct entry *entries, size_t count);
void report(const struct table *table, FILE *file);

#endif
