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
    static CYTHON_INLINE PyObject *new_object(PyObject *cls) {
        return PyType_GenericAlloc((PyTypeObject *)cls, 0);
    }
    """
    Py_ssize_t slot_offset(object descriptor)
    void put_slot(object target, Py_ssize_t offset, object value)
    object get_slot(object source, Py_ssize_t offset)
    object new_object(object cls)

cdef object _MISSING


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


cdef class Layout:
    cdef readonly object cls
    cdef readonly list fields
    cdef readonly list tagged
    cdef readonly list absent
    cdef readonly list refused
    cdef readonly bint flexible
    cdef readonly bint has_arrays
    cdef readonly dict by_tag
    cdef readonly long long bytes_min


cdef _locate(Layout layout, Field field)
@cython.locals(field=Field)
cpdef of_defaults(Layout layout)
