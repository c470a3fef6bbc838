#include "tally.h"

/* FNV-1a, 32 bits */
unsigned long hash_word(const char *word)
{
    unsigned long hash = 2166136261ul;
    for (; *word; word++)
        hash = ((hash ^ (unsigned char)*word) * 16777619ul) & 0xfffffffful;
    return hash;
}
