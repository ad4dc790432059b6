/* The module of the compiled loops: functions with the arguments of the functions in `exact_numpy`.

   They check the types and shapes of all arrays, and run without the interpreter's lock. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "_loops.h"

enum { WRONG_SHAPE = NO_MEMORY + 1, WRONG_ARGUMENT }; /* further statuses of a call */

/* Arguments of a call: views of its arrays, and its number. */
typedef struct { Py_buffer views[10]; int count; Py_ssize_t number; } Call;
/* Types of arrays by their letter: the formats of the buffer protocol, and the size of an item unless formats tell it.
   Other systems have another format for the same size. */
static const struct { char letter; const char *name, *formats; Py_ssize_t size; } TYPES[] = {
    {'l', "int64", "lq", 8}, {'i', "int32", "il", 4}, {'h', "uint16", "H", 2}, {'f', "float32", "f", 4},
    {'b', "bool", "?", 1}, {'w', "float32, uint16 or uint8", "fHB", 0}};

/* Take an array whose type is a letter, a capital for one that is written to; return 0 with an error if it differs. */
static int take(Call *call, PyObject *array, char letter, int dimensions)
{
    Py_buffer *view = &call->views[call->count];
    int type = 0, written = letter < 'a' ? PyBUF_WRITABLE : 0;
    while (TYPES[type].letter != (letter | 32))
        type++;
    if (PyObject_GetBuffer(array, view, PyBUF_ND | PyBUF_FORMAT | written)) /* PyBUF_ND: contiguous */
        return 0;
    const char *format = view->format ? view->format : "B";
    call->count++;
    if (view->ndim == dimensions && *format && !format[1] && strchr(TYPES[type].formats, *format)
        && (!TYPES[type].size || view->itemsize == TYPES[type].size) && !((uintptr_t)view->buf % view->itemsize))
        return 1;
    PyErr_Format(PyExc_TypeError, "array %d must be aligned %s with %d dimensions", call->count, TYPES[type].name,
        dimensions);
    return 0;
}

static PyObject *end(Call *call, int status)
{
    while (call->count)
        PyBuffer_Release(&call->views[--call->count]);
    if (status == NO_MEMORY)
        return PyErr_NoMemory();
    if (status == OUT_OF_RANGE)
        PyErr_SetString(PyExc_IndexError, "an entry of a sparse matrix is out of range");
    if (status == WRONG_SHAPE)
        PyErr_SetString(PyExc_ValueError, "the shapes of the arrays must fit together");
    if (status)
        return NULL;
    Py_RETURN_NONE;
}

/* Take what `wanted` lists: "n" for the number, for an array the letter of its type and its dimensions. A tuple stands
   for its items. Return 0 if something differs. */
static int take_all(Call *call, PyObject *arguments, const char **wanted)
{
    for (Py_ssize_t i = 0; i < PyTuple_Size(arguments); i++) {
        PyObject *argument = PyTuple_GetItem(arguments, i);
        if (PyTuple_Check(argument)) {
            if (!take_all(call, argument, wanted))
                return 0;
        } else if (**wanted == 'n') {
            call->number = PyLong_AsSsize_t(argument);
            ++*wanted;
        } else if (!**wanted || !take(call, argument, (*wanted)[0], (*wanted)[1] - '0')) {
            return 0;
        } else {
            *wanted += 2;
        }
    }
    return !PyErr_Occurred();
}

static int begin(Call *call, PyObject *arguments, const char *wanted)
{
    call->count = 0;
    if (take_all(call, arguments, &wanted) && !*wanted)
        return 1;
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_TypeError, "the call must have another number of arguments");
    end(call, WRONG_ARGUMENT);
    return 0;
}

#define LENGTH(view, axis) (call.views[view].shape[axis])
#define DATA(view) (call.views[view].buf)
/* Carry out a function, without the interpreter's lock, if the shapes fit together; return None or NULL. */
#define CARRY_OUT(fits, function) \
    int status = WRONG_SHAPE; \
    if (fits) { \
        Py_BEGIN_ALLOW_THREADS \
        status = function; \
        Py_END_ALLOW_THREADS \
    } \
    return end(&call, status)

/* Set the matrix whose arrays begin at a view; return 0 if they do not fit together. */
static int matrix_of(const Call *call, int view, Matrix *matrix)
{
    const Py_buffer *views = &call->views[view];
    *matrix = (Matrix){views[0].buf, views[1].buf, views[2].buf, views[0].shape[0] - 1, views[1].shape[0]};
    return matrix->rows >= 0 && matrix->count == views[2].shape[0];
}

/* Set the posting lists of the first three views. */
static int postings_of(const Call *call, Postings *lists)
{
    const Py_buffer *views = call->views;
    int64_t n = call->number, windows = n > WINDOW_SIZE ? (n + WINDOW_SIZE - 1) / WINDOW_SIZE : 1;
    *lists = (Postings){views[0].buf, views[1].buf, views[2].buf, views[2].itemsize, views[1].shape[0],
        (views[0].shape[0] - 1) / windows, n, windows};
    return 0 <= n && n <= INT32_MAX && views[0].shape[0] == lists->terms * windows + 1
        && lists->count == views[2].shape[0];
}

static PyObject *search(PyObject *module, PyObject *arguments)
{
    Call call;
    Postings lists;
    Matrix queries;
    if (!begin(&call, arguments, "l1h1w1nl1i1f1i1b1I2F2"))
        return NULL;
    int fits = postings_of(&call, &lists) && matrix_of(&call, 3, &queries) && LENGTH(6, 0) == queries.rows
        && (!LENGTH(7, 0) || LENGTH(7, 0) == lists.n) && LENGTH(8, 0) == queries.rows && LENGTH(9, 0) == queries.rows
        && LENGTH(8, 1) == LENGTH(9, 1);
    CARRY_OUT(fits, search_all(&lists, &queries, DATA(6), LENGTH(7, 0) ? DATA(7) : NULL, LENGTH(8, 1), DATA(8), DATA(9)));
}

static PyObject *count_matches(PyObject *module, PyObject *arguments)
{
    Call call;
    Postings lists;
    Matrix queries;
    if (!begin(&call, arguments, "l1h1w1nl1i1f1i1L1"))
        return NULL;
    int fits = postings_of(&call, &lists) && matrix_of(&call, 3, &queries) && LENGTH(6, 0) == queries.rows
        && LENGTH(7, 0) == queries.rows;
    CARRY_OUT(fits, count_all(&lists, &queries, DATA(6), DATA(7)));
}

static PyObject *find_postings(PyObject *module, PyObject *arguments)
{
    Call call;
    Postings lists;
    if (!begin(&call, arguments, "l1h1w1nl1L2"))
        return NULL;
    int fits = postings_of(&call, &lists) && LENGTH(4, 0) == LENGTH(3, 0) && LENGTH(4, 1) == lists.terms;
    CARRY_OUT(fits, find_all(&lists, DATA(3), LENGTH(3, 0), DATA(4)));
}

static PyObject *score_candidates(PyObject *module, PyObject *arguments)
{
    Call call;
    Postings lists;
    Matrix queries;
    if (!begin(&call, arguments, "l1h1w1nl1i1f1i2F2"))
        return NULL;
    int fits = postings_of(&call, &lists) && matrix_of(&call, 3, &queries) && LENGTH(6, 0) == queries.rows
        && LENGTH(7, 0) == queries.rows && LENGTH(6, 1) == LENGTH(7, 1);
    CARRY_OUT(fits, score_all(&lists, &queries, DATA(6), LENGTH(6, 1), DATA(7)));
}

static PyObject *rescore(PyObject *module, PyObject *arguments)
{
    Call call;
    Matrix documents, queries;
    if (!begin(&call, arguments, "l1i1f1nl1i1f1i2F2"))
        return NULL;
    int fits = matrix_of(&call, 0, &documents) && matrix_of(&call, 3, &queries) && LENGTH(6, 0) == queries.rows
        && LENGTH(7, 0) == queries.rows && LENGTH(6, 1) == LENGTH(7, 1) && 0 <= call.number && call.number <= INT32_MAX;
    CARRY_OUT(fits, rescore_all(&documents, call.number, &queries, DATA(6), LENGTH(6, 1), DATA(7)));
}

static PyObject *in_order(PyObject *module, PyObject *arguments)
{
    Call call;
    Matrix matrix;
    if (!begin(&call, arguments, "l1i1f1n"))
        return NULL;
    int ordered = matrix_of(&call, 0, &matrix) && is_in_order(&matrix, call.number);
    end(&call, DONE);
    return PyBool_FromLong(ordered);
}

static PyMethodDef FUNCTIONS[] = {{"search", search, METH_VARARGS, NULL},
    {"count_matches", count_matches, METH_VARARGS, NULL}, {"find_postings", find_postings, METH_VARARGS, NULL},
    {"score_candidates", score_candidates, METH_VARARGS, NULL}, {"rescore", rescore, METH_VARARGS, NULL},
    {"in_order", in_order, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};

static PyModuleDef_Slot SLOTS[] = {
#ifdef Py_GIL_DISABLED
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL}};

static PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_kernels", NULL, 0, FUNCTIONS, SLOTS, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__kernels(void)
{
    return PyModuleDef_Init(&MODULE);
}
