/* The loops of exact search: scores term at a time, the k best, and rescoring.

   `exact_numpy` describes what they do, and gives the same bits: float32 sums in the order of the terms, without fused
   operations. No loop reads or writes beyond an array, whatever is in it.

   Shapes: n documents, w windows of documents, q queries, v output terms, k results, c candidates, m chosen documents. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define WINDOW_SIZE 65536 /* documents: positions of 16 bits */
#define BLOCK 128 /* documents whose scores are compared with the threshold at once */
#define LOW 0xFFFFFFFF /* mask of the half of a key that holds the document */

#ifdef __GNUC__ /* and clang */
#define INLINE inline __attribute__((always_inline))
#ifdef __x86_64__
#define WIDE __attribute__((target("avx2")))
#endif
#else
#define INLINE inline
#endif

enum { DONE, OUT_OF_RANGE, NO_MEMORY }; /* the status of a loop */

/* A score that is not negative; its bits, as an integer, have the order of the scores. */
typedef union { float score; int32_t bits; } Score;
/* A CSR matrix. Starts of rows are [rows + 1]. */
typedef struct { const int64_t *starts; const int32_t *columns; const float *weights; int64_t rows, count; } Matrix;
/* List `term * windows + window` has the places within the window of the documents with the term. */
typedef struct {
    const int64_t *starts;
    const uint16_t *places;
    const void *weights;
    int64_t weight_size, count, terms, n, windows;
} Postings;
/* Entries of a row of a matrix, or of a posting list. */
typedef struct { int64_t first, end; } Span;
/* The best documents, a min-heap. A key is the bits of a score, then LOW - document: of equal scores, the lower document
   is better. */
typedef struct { int64_t *keys, size, k; } Heap;

static int within(const int64_t *starts, int64_t row, int64_t count, Span *span)
{
    span->first = starts[row];
    span->end = starts[row + 1];
    return 0 <= span->first && span->first <= span->end && span->end <= count;
}

static int row_of(const Matrix *matrix, int64_t row, Span *span)
{
    return 0 <= row && row < matrix->rows && within(matrix->starts, row, matrix->count, span);
}

static int list_of(const Postings *lists, int64_t term, int64_t window, Span *span)
{
    return 0 <= term && term < lists->terms
        && within(lists->starts, term * lists->windows + window, lists->count, span);
}

static float weight_at(const Postings *lists, int64_t posting)
{
    switch (lists->weight_size) {
    case 1: return (float)((const uint8_t *)lists->weights)[posting];
    case 2: return (float)((const uint16_t *)lists->weights)[posting];
    default: return ((const float *)lists->weights)[posting];
    }
}

/* Return the posting of a place in a list, or -1. */
static int64_t find(const Postings *lists, Span list, uint16_t place)
{
    int64_t first = list.first, end = list.end;
    while (first < end) {
        int64_t middle = first + (end - first) / 2;
        if (lists->places[middle] < place)
            first = middle + 1;
        else
            end = middle;
    }
    return first < list.end && lists->places[first] == place ? first : -1;
}

static void sift_down(int64_t *keys, int64_t size, int64_t key)
{
    int64_t at = 0;
    for (int64_t child = 1; child < size; child = 2 * at + 1) {
        if (child + 1 < size && keys[child + 1] < keys[child])
            child++;
        if (keys[child] >= key)
            break;
        keys[at] = keys[child];
        at = child;
    }
    keys[at] = key;
}

static void keep(Heap *heap, int64_t key)
{
    if (heap->size == heap->k) {
        sift_down(heap->keys, heap->size, key);
        return;
    }
    int64_t at = heap->size++;
    while (at && heap->keys[(at - 1) / 2] > key) {
        heap->keys[at] = heap->keys[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap->keys[at] = key;
}

/* Keep the documents from `base` on that beat the worst of the k best, and reset their scores, `width` of them, to 0.
   Documents come in ascending order, so that a score never replaces an equal score. */
static INLINE void collect_any(Score *window, int64_t width, int64_t base, Heap *heap)
{
    int32_t threshold = heap->size == heap->k ? (int32_t)(heap->keys[0] >> 32) : 0;
    for (int64_t start = 0; start < width; start += BLOCK) {
        Score *block = window + start;
        int32_t beats = 0;
        for (int i = 0; i < BLOCK; i++) /* no branch: many comparisons in one instruction */
            beats |= block[i].bits > threshold;
        for (int i = 0; beats && i < BLOCK; i++)
            if (block[i].bits > threshold) {
                keep(heap, (int64_t)block[i].bits << 32 | (int64_t)(LOW - (base + start + i)));
                threshold = heap->size == heap->k ? (int32_t)(heap->keys[0] >> 32) : 0;
            }
        memset(block, 0, BLOCK * sizeof *block); /* while the block is in the CPU cache */
    }
}

#ifdef WIDE /* eight comparisons in an instruction, not four, where the processor can */
WIDE static void collect_wide(Score *window, int64_t width, int64_t base, Heap *heap)
{
    collect_any(window, width, base, heap);
}
#endif

static void collect(Score *window, int64_t width, int64_t base, Heap *heap)
{
#ifdef WIDE
    if (__builtin_cpu_supports("avx2")) {
        collect_wide(window, width, base, heap);
        return;
    }
#endif
    collect_any(window, width, base, heap);
}

#define ADD(type) \
    for (int64_t p = list.first; p < list.end; p++) \
        window[places[p]].score += weight * (float)((const type *)lists->weights)[p]

static void add(const Postings *lists, Span list, float weight, Score *window)
{
    const uint16_t *places = lists->places;
    switch (lists->weight_size) {
    case 1: ADD(uint8_t); break;
    case 2: ADD(uint16_t); break;
    default: ADD(float);
    }
}

/* Add the scores of a query's `terms` to the documents of a window, and count the terms in `matched` if it is given. */
static int score_window(
    const Postings *lists, const Matrix *queries, Span terms, int64_t number, Score *window, int32_t *matched)
{
    for (int64_t j = terms.first; j < terms.end; j++) {
        Span list;
        if (!list_of(lists, queries->columns[j], number, &list))
            return OUT_OF_RANGE;
        add(lists, list, queries->weights[j], window);
        for (int64_t p = list.first; matched && p < list.end; p++)
            matched[lists->places[p]]++;
    }
    return DONE;
}

/* Reset the scores of documents that have too few of a query's terms or are not allowed, and the counts of terms. */
static void drop(Score *window, int64_t width, int32_t *matched, int32_t needed, const uint8_t *allowed)
{
    for (int64_t i = 0; matched && i < width; i++) {
        if (matched[i] < needed)
            window[i].bits = 0;
        matched[i] = 0;
    }
    for (int64_t i = 0; allowed && i < width; i++)
        if (!allowed[i])
            window[i].bits = 0;
}

/* Empty the heap, which yields the worst first, into the k best of a query. */
static void write_best(Heap *heap, int32_t *rows, float *scores)
{
    while (heap->size) {
        int64_t key = heap->keys[0];
        Score score = {.bits = (int32_t)(key >> 32)};
        heap->size--;
        sift_down(heap->keys, heap->size, heap->keys[heap->size]);
        rows[heap->size] = (int32_t)(LOW - (key & LOW));
        scores[heap->size] = score.score;
    }
}

static int search_all(const Postings *lists, const Matrix *queries, const int32_t *needed, const uint8_t *allowed,
    int64_t k, int32_t *rows, float *scores)
{
    int status = DONE, counted = 0;
    for (int64_t q = 0; q < queries->rows; q++)
        counted |= needed[q] > 1;
    int64_t most = k < lists->n ? k : lists->n, used = lists->n + BLOCK < WINDOW_SIZE ? lists->n + BLOCK : WINDOW_SIZE;
    Heap heap = {malloc((size_t)(most + 1) * sizeof(int64_t)), 0, k};
    Score *window = malloc(WINDOW_SIZE * sizeof *window); /* even of few documents: a place never is beyond it */
    int32_t *matched = counted ? calloc(WINDOW_SIZE, sizeof *matched) : NULL;
    if (!heap.keys || !window || (counted && !matched))
        status = NO_MEMORY;
    else
        memset(window, 0, (size_t)used * sizeof *window);
    for (int64_t q = 0; !status && k && q < queries->rows; q++) {
        int32_t *counts = needed[q] > 1 ? matched : NULL;
        Span terms;
        if (!row_of(queries, q, &terms))
            status = OUT_OF_RANGE;
        for (int64_t number = 0; !status && number < lists->windows; number++) {
            int64_t base = number * WINDOW_SIZE;
            int64_t width = lists->n - base < WINDOW_SIZE ? lists->n - base : WINDOW_SIZE;
            status = score_window(lists, queries, terms, number, window, counts);
            drop(window, width, counts, needed[q], allowed ? allowed + base : NULL);
            collect(window, width, base, &heap);
        }
        write_best(&heap, rows + q * k, scores + q * k);
    }
    free(heap.keys);
    free(window);
    free(matched);
    return status;
}

static int count_all(const Postings *lists, const Matrix *queries, const int32_t *needed, int64_t *counts)
{
    int status = DONE;
    int32_t *shared = calloc(WINDOW_SIZE, sizeof *shared);
    if (!shared)
        status = NO_MEMORY;
    for (int64_t q = 0; !status && q < queries->rows; q++) {
        int32_t enough = needed[q] > 1 ? needed[q] : 1;
        Span terms, list;
        if (!row_of(queries, q, &terms))
            status = OUT_OF_RANGE;
        for (int64_t number = 0; !status && number < lists->windows; number++) {
            for (int64_t j = terms.first; !status && j < terms.end; j++) {
                if (!list_of(lists, queries->columns[j], number, &list))
                    status = OUT_OF_RANGE;
                else
                    for (int64_t p = list.first; p < list.end; p++)
                        counts[q] += ++shared[lists->places[p]] == enough;
            }
            memset(shared, 0, WINDOW_SIZE * sizeof *shared);
        }
    }
    free(shared);
    return status;
}

static int find_all(const Postings *lists, const int64_t *chosen, int64_t m, int64_t *entries)
{
    for (int64_t row = 0; row < m; row++) {
        if (chosen[row] < 0 || chosen[row] >= lists->n)
            return OUT_OF_RANGE;
        for (int64_t term = 0; term < lists->terms; term++) {
            Span list;
            if (!list_of(lists, term, chosen[row] / WINDOW_SIZE, &list))
                return OUT_OF_RANGE;
            int64_t posting = find(lists, list, (uint16_t)(chosen[row] % WINDOW_SIZE));
            if (posting >= 0)
                entries[row * lists->terms + term] = posting;
        }
    }
    return DONE;
}

/* Set the dot product of the `terms` of a query and a document; look up the postings. */
static int score_one(const Postings *lists, const Matrix *queries, Span terms, int64_t document, float *score)
{
    *score = 0;
    if (document >= lists->n)
        return OUT_OF_RANGE;
    for (int64_t j = terms.first; document >= 0 && j < terms.end; j++) {
        Span list;
        if (!list_of(lists, queries->columns[j], document / WINDOW_SIZE, &list))
            return OUT_OF_RANGE;
        int64_t posting = find(lists, list, (uint16_t)(document % WINDOW_SIZE));
        if (posting >= 0)
            *score += queries->weights[j] * weight_at(lists, posting);
    }
    return DONE;
}

static int score_all(const Postings *lists, const Matrix *queries, const int32_t *candidates, int64_t c, float *scores)
{
    int status = DONE;
    for (int64_t q = 0; !status && q < queries->rows; q++) {
        Span terms;
        if (!row_of(queries, q, &terms))
            return OUT_OF_RANGE;
        for (int64_t i = q * c; !status && i < (q + 1) * c; i++)
            status = score_one(lists, queries, terms, candidates[i], scores + i);
    }
    return status;
}

/* Write the weights of a query, or 0, at its `terms` in `dense` [v]. */
static int spread(const Matrix *queries, Span terms, int clear, float *dense, int64_t v)
{
    for (int64_t j = terms.first; j < terms.end; j++) {
        if (queries->columns[j] < 0 || queries->columns[j] >= v)
            return OUT_OF_RANGE;
        dense[queries->columns[j]] = clear ? 0 : queries->weights[j];
    }
    return DONE;
}

/* Set the dot product of a document, -1 for none, and a query that is `dense` [v]. */
static int product(const Matrix *documents, int64_t document, const float *dense, int64_t v, float *score)
{
    Span terms;
    *score = 0;
    if (document < 0)
        return DONE;
    if (!row_of(documents, document, &terms))
        return OUT_OF_RANGE;
    for (int64_t p = terms.first; p < terms.end; p++) {
        if (documents->columns[p] < 0 || documents->columns[p] >= v)
            return OUT_OF_RANGE;
        *score += dense[documents->columns[p]] * documents->weights[p];
    }
    return DONE;
}

static int rescore_all(
    const Matrix *documents, int64_t v, const Matrix *queries, const int32_t *rows, int64_t c, float *scores)
{
    float *dense = calloc((size_t)v + 1, sizeof *dense);
    int status = dense ? DONE : NO_MEMORY;
    for (int64_t q = 0; !status && q < queries->rows; q++) {
        Span terms;
        if (!row_of(queries, q, &terms) || spread(queries, terms, 0, dense, v))
            status = OUT_OF_RANGE;
        for (int64_t i = q * c; !status && i < (q + 1) * c; i++)
            status = product(documents, rows[i], dense, v, scores + i);
        if (!status)
            spread(queries, terms, 1, dense, v);
    }
    free(dense);
    return status;
}

static int is_in_order(const Matrix *matrix, int64_t size)
{
    if (matrix->starts[0] != 0 || matrix->starts[matrix->rows] != matrix->count)
        return 0;
    for (int64_t row = 0; row < matrix->rows; row++) {
        Span span;
        if (!row_of(matrix, row, &span))
            return 0;
        int64_t previous = -1;
        for (int64_t p = span.first; p < span.end; p++) {
            float weight = matrix->weights[p];
            if (matrix->columns[p] <= previous || matrix->columns[p] >= size || !(0 < weight && weight < INFINITY))
                return 0;
            previous = matrix->columns[p];
        }
    }
    return 1;
}
