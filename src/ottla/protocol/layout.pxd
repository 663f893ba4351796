# C types for `layout.py`; see there.
cimport cython

cdef extern from *:
    """
    #include "structmember.h"
    /* The place of a slot in an object, -1 for what is no slot. */
    static Py_ssize_t slot_offset(PyObject *descriptor) {
        if (!Py_IS_TYPE(descriptor, &PyMemberDescr_Type)) return -1;
        return ((PyMemberDescrObject *)descriptor)->d_member->offset;
    }
    static CYTHON_INLINE void put_slot(PyObject *target, Py_ssize_t offset, PyObject *value) {
        PyObject **slot = (PyObject **)((char *)target + offset);
        PyObject *old = *slot;
        Py_INCREF(value);
        *slot = value;
        Py_XDECREF(old);
    }
    static CYTHON_INLINE PyObject *get_slot(PyObject *source, Py_ssize_t offset) {
        PyObject *value = *(PyObject **)((char *)source + offset);
        if (value == NULL) value = Py_None;
        Py_INCREF(value);
        return value;
    }
    /* What was read is a tree of plain values: in no cycle, so the collector need not visit it. */
    static CYTHON_INLINE PyObject *new_object(PyObject *cls) {
        PyTypeObject *type = (PyTypeObject *)cls;
        PyObject *made;
        if (PyType_IS_GC(type)) {
            made = PyType_GenericAlloc(type, 0);
            if (made != NULL) PyObject_GC_UnTrack(made);
            return made;
        }
        made = (PyObject *)PyObject_Malloc(type->tp_basicsize);
        if (made == NULL) return PyErr_NoMemory();
        PyObject **slot = (PyObject **)(made + 1), **end = (PyObject **)((char *)made + type->tp_basicsize);
        for (; slot < end; slot++) *slot = NULL;
        return PyObject_Init(made, type);
    }
    static void dealloc_struct(PyObject *self) {
        PyTypeObject *cls = Py_TYPE(self);
        PyObject **slot = (PyObject **)(self + 1), **end = (PyObject **)((char *)self + cls->tp_basicsize);
        for (; slot < end; slot++) Py_XDECREF(*slot);
        cls->tp_free(self);
        Py_DECREF(cls);
    }
    /* Objects of a new class, which has slots only, are made without a header for the collector. */
    static void uncollect(PyObject *cls) {
        PyTypeObject *type = (PyTypeObject *)cls;
        type->tp_flags &= ~Py_TPFLAGS_HAVE_GC;
        type->tp_traverse = NULL;
        type->tp_clear = NULL;
        type->tp_free = PyObject_Free;
        type->tp_dealloc = dealloc_struct;
    }
    """
    Py_ssize_t slot_offset(object descriptor)
    void put_slot(object target, Py_ssize_t offset, object value)
    object get_slot(object source, Py_ssize_t offset)
    object new_object(object cls)
    void uncollect(object cls)

cdef enum:
    _INT8 = 1
    _INT16 = 2
    _UINT16 = 3
    _INT32 = 4
    _UINT32 = 5
    _INT64 = 6
    _BOOL = 7
    _ERROR = 8
    _FLOAT64 = 9
    _UUID = 10
    _STRING = 11
    _BYTES = 12
    _RECORDS = 13
    _STRUCT = 14

cdef object _MISSING


@cython.final
cdef class Field:
    cdef readonly str name
    cdef readonly int kind
    cdef readonly bint is_array
    cdef readonly bint nullable
    cdef readonly bint flexible
    cdef readonly object default
    cdef readonly Layout layout
    cdef readonly int tag
    cdef bint shortened
    cdef long long item_cost
    cdef readonly long long item_bytes_min
    cdef Py_ssize_t offset


@cython.final
cdef class Layout:
    cdef readonly object cls
    cdef readonly list fields
    cdef readonly list tagged
    cdef readonly list absent
    cdef readonly list refused
    cdef readonly bint flexible
    cdef readonly bint has_arrays
    cdef bint plain
    cdef object other
    cdef readonly dict by_tag
    cdef readonly long long bytes_min


cdef _locate(Layout layout, Field field)
@cython.locals(field=Field)
cpdef of_defaults(Layout layout)
