# C types for `memory.py`; see there. C libraries other than glibc have neither function.
cdef extern from *:
    """
    #include <stdlib.h>
    #ifdef __GLIBC__
    #include <malloc.h>
    static void set_malloc_option(int option, int value) { mallopt(option, value); }
    static void trim_malloc(void) { malloc_trim(0); }
    #else
    static void set_malloc_option(int option, int value) { (void)option; (void)value; }
    static void trim_malloc(void) {}
    #endif
    """
    void set_malloc_option(int option, int value)
    void trim_malloc()
