/* Checkers endgame databases by retrograde analysis, one part at a time.
 *
 *   solve run BK WK BC WC BR WR    compute a part and its mirror image, pack them, add them to the databases;
 *                                  two file names behind say where to put them instead, one will do for a part that
 *                                  is its own mirror image
 *   solve ver BK WK BC WC BR WR    derive every stored value again from the stored values of its successors
 *   solve table N                  wins, losses and draws, black to move, of all slices of up to N pieces
 *
 * A slice is named by black kings, white kings, black checkers, white checkers; a part of it by the ranks of the
 * leading checkers: the row of the foremost one, counted from its own side, 0 where there is none. In every position
 * stored black is to move: white to move is the mirror image, colours swapped and the board turned round.
 * The databases are files BKWKBCWC.BRWR in the folder $CHECKERS_DATABASES ("databases"). Exit code 1: something is
 * wrong with a database, 2: with the command line.
 *
 * Rules: checkers step and jump forwards, kings both ways; jumping is compulsory and goes on while it can; a checker
 * that reaches the far row becomes a king, which ends the move; who has no pieces or no move has lost.
 */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NOTHING, WIN, LOSS, DRAW };          /* NOTHING: no position has this number, or it is not known yet */
enum { BK, WK, BC, WC, BR, WR, NUMBERS };   /* a part */
enum { MOST = 8, RANKS = 7, SQUARES = 32 }; /* MOST: pieces of one kind */

typedef int Part[NUMBERS];
typedef struct { uint32_t men, kings, their_men, their_kings; } Position; /* sets of squares; 1 << 0 is square 1 */
typedef struct {
    Part part;
    uint64_t black_sets, white_sets, black_kings, white_kings; /* in how many ways they stand */
    uint64_t black_first, white_first;                         /* the number of the first set of checkers */
    uint64_t size;
    uint8_t *value;
} Table;
typedef struct { Position *list; int count, room; } Moves;

static int neighbour[SQUARES][4]; /* 0, 1: a row on; 2, 3: a row back; -1: off the board */
static uint64_t choose[SQUARES + 1][MOST + 1];
static Table *known[MOST + 1][MOST + 1][MOST + 1][MOST + 1][RANKS][RANKS];

static void quit(int code, const char *format, ...) {
    va_list words;
    va_start(words, format);
    fputs("solve: ", stderr);
    vfprintf(stderr, format, words);
    fputc('\n', stderr);
    va_end(words);
    exit(code);
}

static void *reserve(size_t count, size_t size) {
    void *memory = calloc(count ? count : 1, size);
    if (!memory) quit(1, "no memory for %zu values", count);
    return memory;
}

static void prepare(void) {
    for (int n = 0; n <= SQUARES; n++)
        for (int k = 0; k <= MOST; k++)
            choose[n][k] = k == 0 ? 1 : n == 0 ? 0 : choose[n - 1][k - 1] + choose[n - 1][k];
    for (int square = 0; square < SQUARES; square++)
        for (int way = 0; way < 4; way++) {
            int row = square / 4, column = 2 * (square % 4) + (row % 2 == 0);
            row += way < 2 ? 1 : -1;
            column += way % 2 ? 1 : -1;
            int inside = row >= 0 && row < 8 && column >= 0 && column < 8;
            neighbour[square][way] = inside ? 4 * row + column / 2 : -1;
        }
}

/* --- sets of squares ------------------------------------------------------------------------------------------- */

static uint32_t turned(uint32_t set) { /* the board turned round */
    uint32_t result = 0;
    for (; set; set &= set - 1) result |= UINT32_C(1) << (SQUARES - 1 - __builtin_ctz(set));
    return result;
}

static int front(uint32_t men) { /* the rank of the leading checker of black */
    return men ? (SQUARES - 1 - __builtin_clz(men)) / 4 : 0;
}

/* The number of a set among those of its size, by its highest square first: sets within the first rows come first. */
static uint64_t number_of(uint32_t set) {
    uint64_t number = 0;
    for (int k = 1; set; set &= set - 1, k++) number += choose[__builtin_ctz(set)][k];
    return number;
}

static uint32_t set_of(uint64_t number, int size) {
    uint32_t set = 0;
    for (int k = size, square = SQUARES - 1; k > 0; k--) {
        while (choose[square][k] > number) square--;
        set |= UINT32_C(1) << square;
        number -= choose[square][k];
    }
    return set;
}

static uint32_t squeezed(uint32_t set, uint32_t taken) { /* the set in the numbering of the squares that are not taken */
    uint32_t result = 0;
    for (; set; set &= set - 1) {
        int square = __builtin_ctz(set);
        result |= UINT32_C(1) << (square - __builtin_popcount(taken & ((UINT32_C(1) << square) - 1)));
    }
    return result;
}

static uint32_t spread(uint32_t set, uint32_t taken) { /* the opposite */
    uint32_t result = 0;
    for (int square = 0, number = 0; square < SQUARES; square++)
        if (!(taken >> square & 1)) result |= (set >> number++ & 1) << square;
    return result;
}

/* --- tables ---------------------------------------------------------------------------------------------------- */

static void mirror(const Part part, Part image) {
    static const int from[NUMBERS] = {WK, BK, WC, BC, WR, BR};
    for (int i = 0; i < NUMBERS; i++) image[i] = part[from[i]];
}

static void part_of(const Position *p, Part part) {
    part[BK] = __builtin_popcount(p->kings);
    part[WK] = __builtin_popcount(p->their_kings);
    part[BC] = __builtin_popcount(p->men);
    part[WC] = __builtin_popcount(p->their_men);
    part[BR] = front(p->men);
    part[WR] = front(turned(p->their_men));
}

static uint64_t sets_before(int rank, int checkers) { /* sets of checkers that stay behind a row */
    return checkers ? choose[4 * rank][checkers] : 0;
}

static Table *new_table(const Part part) {
    Table *table = reserve(1, sizeof *table);
    memcpy(table->part, part, sizeof(Part));
    int left = SQUARES - part[BC] - part[WC];
    table->black_first = sets_before(part[BR], part[BC]);
    table->white_first = sets_before(part[WR], part[WC]);
    table->black_sets = part[BC] ? sets_before(part[BR] + 1, part[BC]) - table->black_first : 1;
    table->white_sets = part[WC] ? sets_before(part[WR] + 1, part[WC]) - table->white_first : 1;
    table->black_kings = choose[left][part[BK]];
    table->white_kings = choose[left - part[BK]][part[WK]];
    table->size = table->black_sets * table->white_sets * table->black_kings * table->white_kings;
    table->value = reserve(table->size, 1);
    return table;
}

static uint64_t index_of(const Table *table, const Position *p) {
    uint32_t men = p->men | p->their_men;
    uint64_t index = number_of(p->men) - table->black_first;
    index = index * table->white_sets + number_of(turned(p->their_men)) - table->white_first;
    index = index * table->black_kings + number_of(squeezed(p->kings, men));
    return index * table->white_kings + number_of(squeezed(p->their_kings, men | p->kings));
}

static int position_at(const Table *table, uint64_t index, Position *p) { /* 0: checkers would stand on each other */
    uint64_t white_kings = index % table->white_kings, black_kings = (index /= table->white_kings) % table->black_kings;
    uint64_t white_set = (index /= table->black_kings) % table->white_sets, black_set = index / table->white_sets;
    p->men = set_of(black_set + table->black_first, table->part[BC]);
    p->their_men = turned(set_of(white_set + table->white_first, table->part[WC]));
    if (p->men & p->their_men) return 0;
    uint32_t men = p->men | p->their_men;
    p->kings = spread(set_of(black_kings, table->part[BK]), men);
    p->their_kings = spread(set_of(white_kings, table->part[WK]), men | p->kings);
    return 1;
}

/* --- files: four values a byte --------------------------------------------------------------------------------- */

static const char *folder(void) {
    const char *said = getenv("CHECKERS_DATABASES");
    return said && *said ? said : "databases";
}

static void name_file(const Part part, char *name, size_t room) {
    snprintf(name, room, "%s/%d%d%d%d.%d%d", folder(), part[BK], part[WK], part[BC], part[WC], part[BR], part[WR]);
}

static void store(const Table *table, const char *to) {
    char name[4096], fresh[4200];
    if (to)
        snprintf(name, sizeof name, "%s", to);
    else
        name_file(table->part, name, sizeof name);
    snprintf(fresh, sizeof fresh, "%s.%ld", name, (long)getpid());
    uint64_t bytes = (table->size + 3) / 4;
    uint8_t *packed = reserve(bytes, 1);
    for (uint64_t i = 0; i < table->size; i++) packed[i / 4] |= (uint8_t)(table->value[i] << 2 * (i % 4));
    if (!to && mkdir(folder(), 0777) && errno != EEXIST) quit(1, "cannot make %s: %s", folder(), strerror(errno));
    FILE *file = fopen(fresh, "wb");
    if (!file || fwrite(packed, 1, bytes, file) != bytes || fclose(file) || rename(fresh, name))
        quit(1, "cannot write %s: %s", name, strerror(errno)); /* renamed, so that nobody reads half of it */
    free(packed);
}

static Table *load(const Part part) {
    char name[4096];
    name_file(part, name, sizeof name);
    Table *table = new_table(part);
    uint64_t bytes = (table->size + 3) / 4;
    uint8_t *packed = reserve(bytes + 1, 1);
    FILE *file = fopen(name, "rb");
    if (!file) quit(1, "%s is needed and not there: %s", name, strerror(errno));
    if (fread(packed, 1, bytes + 1, file) != bytes) quit(1, "%s does not have %llu bytes", name, (unsigned long long)bytes);
    fclose(file);
    for (uint64_t i = 0; i < table->size; i++) table->value[i] = packed[i / 4] >> 2 * (i % 4) & 3;
    free(packed);
    return table;
}

static Table **slot(const Part part) { return &known[part[BK]][part[WK]][part[BC]][part[WC]][part[BR]][part[WR]]; }

static Table *find(const Part part) {
    Table **place = slot(part);
    if (!*place) *place = load(part);
    return *place;
}

/* --- moves ----------------------------------------------------------------------------------------------------- */

static void add(Moves *moves, uint32_t men, uint32_t kings, uint32_t their_men, uint32_t their_kings) {
    if (moves->count == moves->room) {
        moves->room = moves->room ? 2 * moves->room : 64;
        moves->list = realloc(moves->list, (size_t)moves->room * sizeof *moves->list);
        if (!moves->list) quit(1, "no memory for moves");
    }
    Position *next = &moves->list[moves->count++]; /* the other side is to move: the mirror image */
    *next = (Position){turned(their_men), turned(their_kings), turned(men), turned(kings)};
}

/* All ways on for a piece that was taken off its square; `men` and `kings` are the other ones of its side. */
static int jump(Moves *moves, int square, int king, uint32_t men, uint32_t kings, uint32_t their_men, uint32_t their_kings) {
    int found = 0;
    for (int way = 0; way < (king ? 4 : 2); way++) {
        int over = neighbour[square][way], to = over < 0 ? -1 : neighbour[over][way];
        if (to < 0 || !((their_men | their_kings) >> over & 1) || (men | kings | their_men | their_kings) >> to & 1) continue;
        uint32_t left = ~(UINT32_C(1) << over), there = UINT32_C(1) << to;
        int crowned = !king && to >= 28;
        found = 1;
        if (crowned || !jump(moves, to, king, men, kings, their_men & left, their_kings & left))
            add(moves, king || crowned ? men : men | there, king || crowned ? kings | there : kings, their_men & left,
                their_kings & left);
    }
    return found;
}

static void step(Moves *moves, const Position *p, int square, int king, uint32_t men, uint32_t kings) {
    uint32_t all = p->men | p->kings | p->their_men | p->their_kings;
    for (int way = 0; way < (king ? 4 : 2); way++) {
        int to = neighbour[square][way];
        if (to < 0 || all >> to & 1) continue;
        uint32_t there = UINT32_C(1) << to;
        int crowned = king || to >= 28;
        add(moves, crowned ? men : men | there, crowned ? kings | there : kings, p->their_men, p->their_kings);
    }
}

static void find_moves(const Position *p, Moves *moves) {
    moves->count = 0;
    for (int jumping = 1; jumping >= 0 && moves->count == 0; jumping--)
        for (uint32_t own = p->men | p->kings; own; own &= own - 1) {
            int square = __builtin_ctz(own), king = (int)(p->kings >> square & 1);
            uint32_t rest = ~(UINT32_C(1) << square);
            if (jumping)
                jump(moves, square, king, p->men & rest, p->kings & rest, p->their_men, p->their_kings);
            else
                step(moves, p, square, king, p->men & rest, p->kings & rest);
        }
}

/* --- values ---------------------------------------------------------------------------------------------------- */

static int value_of(const Position *p) {
    Part part;
    if (!(p->men | p->kings)) return LOSS;
    part_of(p, part);
    const Table *table = find(part);
    return table->value[index_of(table, p)];
}

/* What follows from the values of the successors; `open` if nothing does. */
static int derive(const Position *p, Moves *moves, int open) {
    find_moves(p, moves);
    int value = LOSS;
    for (int i = 0; i < moves->count; i++) {
        int next = value_of(&moves->list[i]);
        if (next == LOSS) return WIN;
        if (next != WIN) value = open;
    }
    return value;
}

static int sweep(Table *table, Moves *moves) {
    int changed = 0;
    Position p;
    for (uint64_t i = 0; i < table->size; i++)
        if (table->value[i] == NOTHING && position_at(table, i, &p))
            changed |= (table->value[i] = (uint8_t)derive(&p, moves, NOTHING)) != NOTHING;
    return changed;
}

static void run(Table *pair[2], Moves *moves, char **to) {
    Position p;
    int count = pair[0] == pair[1] ? 1 : 2, changed = 1;
    while (changed) {
        changed = 0;
        for (int t = 0; t < count; t++) changed |= sweep(pair[t], moves);
    }
    for (int t = 0; t < count; t++) {
        for (uint64_t i = 0; i < pair[t]->size; i++)
            if (pair[t]->value[i] == NOTHING && position_at(pair[t], i, &p)) pair[t]->value[i] = DRAW;
        store(pair[t], to ? to[t] : NULL);
    }
}

static void verify(const Table *table, Moves *moves) {
    Position p;
    for (uint64_t i = 0; i < table->size; i++) {
        int right = position_at(table, i, &p) ? derive(&p, moves, DRAW) : NOTHING;
        if (table->value[i] != right) {
            char name[4096];
            name_file(table->part, name, sizeof name);
            quit(1, "%s: position %llu has the value %d instead of %d", name, (unsigned long long)i, table->value[i], right);
        }
    }
}

static void count(const Table *table, uint64_t counts[4]) {
    for (uint64_t i = 0; i < table->size; i++) counts[table->value[i]]++;
}

static void say(const char *name, const uint64_t counts[4]) {
    printf("%s %llu %llu %llu\n", name, (unsigned long long)counts[WIN], (unsigned long long)counts[LOSS],
           (unsigned long long)counts[DRAW]);
}

/* --- the command line ------------------------------------------------------------------------------------------ */

static void say_table(int pieces) {
    for (int n = 2; n <= pieces; n++)
        for (int black = 1; black < n; black++)
            for (int bk = black; bk >= 0; bk--)
                for (int wk = n - black; wk >= 0; wk--) {
                    uint64_t counts[4] = {0};
                    Part part = {bk, wk, black - bk, n - black - wk, 0, 0};
                    for (part[BR] = 0; part[BR] < (part[BC] ? RANKS : 1); part[BR]++)
                        for (part[WR] = 0; part[WR] < (part[WC] ? RANKS : 1); part[WR]++) {
                            Table *table = load(part);
                            count(table, counts);
                            free(table->value);
                            free(table);
                        }
                    char name[32];
                    snprintf(name, sizeof name, "%d%d%d%d", part[BK], part[WK], part[BC], part[WC]);
                    say(name, counts);
                }
}

static int number(const char *word, int most) {
    char *end;
    long value = strtol(word, &end, 10);
    if (!*word || *end || value < 0 || value > most) quit(2, "%s is no number from 0 to %d", word, most);
    return (int)value;
}

static void read_part(char **words, Part part) {
    for (int i = 0; i < NUMBERS; i++) part[i] = number(words[i], i < BR ? MOST : RANKS - 1);
    if (part[BK] + part[BC] == 0 || part[WK] + part[WC] == 0) quit(2, "each side has a piece at least");
    if ((!part[BC] && part[BR]) || (!part[WC] && part[WR])) quit(2, "the rank of no checkers is 0");
}

int main(int argc, char **argv) {
    prepare();
    if (argc == 3 && !strcmp(argv[1], "table")) {
        say_table(number(argv[2], MOST));
        return 0;
    }
    int running = argc > 1 && !strcmp(argv[1], "run"), names = argc - 2 - NUMBERS;
    if ((!running && (argc < 2 || strcmp(argv[1], "ver"))) || names < 0 || names > (running ? 2 : 0))
        quit(2, "say run or ver with BK WK BC WC BR WR, or table N");
    Part part, image;
    read_part(argv + 2, part);
    mirror(part, image);
    if (names && names != 1 + !!memcmp(part, image, sizeof part)) quit(2, "say where to put both, part and mirror image");
    /* A slice that is its own mirror image has each part twice: the one with the smaller first rank is left out. */
    if (!memcmp(part, image, BR * sizeof(int)) && part[BR] < part[WR]) return 0;
    Moves moves = {0};
    Table *pair[2];
    for (int t = 0; t < 2; t++) {
        Table **place = slot(t ? image : part);
        if (!*place) *place = running ? new_table(t ? image : part) : load(t ? image : part);
        pair[t] = *place;
    }
    if (running)
        run(pair, &moves, names ? argv + 2 + NUMBERS : NULL);
    else
        for (int t = 0; t < (pair[0] == pair[1] ? 1 : 2); t++) verify(pair[t], &moves);
    uint64_t counts[4] = {0};
    char name[32];
    count(pair[0], counts);
    snprintf(name, sizeof name, "%d%d%d%d.%d%d", part[BK], part[WK], part[BC], part[WC], part[BR], part[WR]);
    say(name, counts);
    return 0;
}
