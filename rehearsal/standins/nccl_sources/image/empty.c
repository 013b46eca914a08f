/* Nothing: a library that is only there to be linked. */
typedef int standin_empty;
