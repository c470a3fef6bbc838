/* Writes a header with the first primes that follow powers of two: sizes of hash tables. */
#include <stdio.h>
#include <stdlib.h>

static int is_prime(unsigned long n)
{
    for (unsigned long d = 2; d * d <= n; d++)
        if (n % d == 0)
            return 0;
    return n > 1;
}

int main(int argc, char **argv)
{
    unsigned long first = argc > 1 ? strtoul(argv[1], NULL, 10) : 64;
    printf("/* written by mkprimes */\nstatic const unsigned long primes[] = {\n");
    for (unsigned long size = first; size <= 1ul << 24; size *= 2) {
        unsigned long n = size + 1;
        while (!is_prime(n))
            n++;
        printf("    %lu,\n", n);
    }
    printf("};\n");
    return 0;
}
