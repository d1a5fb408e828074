/* The C interface of the engine: the only header that adapters use.
 *
 * No C++ type crosses it: adapters are built with the C++ ABI of their framework, the engine with its own. No
 * exception crosses it either: every function that can fail returns a code and fills the error that it
 * receives.
 *
 * Threads: every function may be called from any thread, except from inside a callback of the engine. A
 * handle is destroyed by one thread when no other uses it. Callbacks run on the engine's own thread or on one
 * that waits for an operation. They block the engine while they run, and must not call it.
 *
 * Versions: structures begin with their size as the caller knows it; fields are only ever added at the end,
 * and a field that the caller does not have is zero.
 */
#ifndef SMDP_ENGINE_H
#define SMDP_ENGINE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Raised whenever a function, a type or a constant below changes its meaning. */
#define SMDP_ABI_VERSION 1

#if defined(__GNUC__)
#define SMDP_API __attribute__((visibility("default")))
#else
#define SMDP_API
#endif

/* The SMDP_ABI_VERSION the library was built with. An adapter compares it with its own before any other call.
 */
SMDP_API int smdp_abi_version(void);

/* The engine's build, as "0.1.0+<12 digits of a digest of its sources>"; a static string. Ranks with
 * different builds refuse each other. */
SMDP_API const char* smdp_engine_build(void);

/* Copies `bytes` bytes to memory that is not read soon, past the processor's caches. The areas do not
 * overlap. */
SMDP_API void smdp_copy_streaming(void* to, const void* from, size_t bytes);

typedef enum smdp_code {
  SMDP_OK = 0,
  SMDP_INVALID = 1,     /* an error of the caller: an argument, an option, a buffer */
  SMDP_TIMEOUT = 2,     /* a deadline passed */
  SMDP_PEER_LOST = 3,   /* a rank died, left or its link was cut */
  SMDP_MISMATCH = 4,    /* the ranks of a group made different calls */
  SMDP_REFUSED = 5,     /* token, build, protocol, generation or layout differ */
  SMDP_SYSTEM = 6,      /* the operating system returned an error */
  SMDP_CLOSED = 7,      /* the engine or the group was closed */
  SMDP_UNSUPPORTED = 8, /* a combination the engine does not offer */
  SMDP_INTERNAL = 9,    /* a bug of the engine */
  SMDP_EXHAUSTED = 10   /* no descriptor or no memory was left */
} smdp_code;

/* Filled in by a call that fails: one sentence that names ranks, hosts, operation and phase. */
typedef struct smdp_error {
  int code;
  char message[2044];
} smdp_error;

typedef enum smdp_dtype {
  SMDP_FLOAT32 = 0,
  SMDP_FLOAT64 = 1,
  SMDP_FLOAT16 = 2,
  SMDP_BFLOAT16 = 3,
  SMDP_INT8 = 4,
  SMDP_INT16 = 5,
  SMDP_INT32 = 6,
  SMDP_INT64 = 7,
  SMDP_UINT8 = 8,
  SMDP_BOOL = 9 /* one byte; anything but 0 is true, results are 0 or 1 */
} smdp_dtype;

typedef enum smdp_reduce_op {
  SMDP_SUM = 0,
  SMDP_AVG = 1, /* not for bool; integers: the sum, truncated towards zero after the division */
  SMDP_MIN = 2,
  SMDP_MAX = 3,
  SMDP_PRODUCT = 4,
  SMDP_BAND = 5, /* integers and bool only, as the two below */
  SMDP_BOR = 6,
  SMDP_BXOR = 7
} smdp_reduce_op;

typedef enum smdp_collective {
  SMDP_ALL_REDUCE = 0, /* input and output: count elements; may be the same memory */
  SMDP_BROADCAST = 1,  /* root: input (and output, which may be the same); others: output */
  SMDP_REDUCE = 2,     /* input on every rank; output on the root */
  SMDP_ALL_GATHER = 3, /* input: count elements; output: count times the group's size */
  SMDP_BARRIER = 4,    /* no memory */
  SMDP_REDUCE_SCATTER =
      5, /* input: count times the group's size; output: count; may be this rank's part of the input */
  /* Made of point-to-point messages: `parts` instead of input and output. dtype and count appear in error
   * texts only. Every rank makes the first three in the same order; a message that one rank sends the other
   * must receive. */
  SMDP_GATHER = 6,
  SMDP_SCATTER = 7,
  SMDP_ALL_TO_ALL = 8,
  SMDP_SEND = 9, /* one part or more; complete when the memory may change, maybe before it is received:
                  * small messages wait at the receiver, up to a limit */
  SMDP_RECV = 10 /* one part or more */
} smdp_collective;

typedef struct smdp_engine smdp_engine;
typedef struct smdp_group smdp_group;
typedef struct smdp_operation smdp_operation;

/* A key-value store that carries rank 0's address to the others while an engine opens. Each function returns
 * 0, or anything else when it failed. `get` waits until the key is there, at most `timeout_s`, and writes at
 * most `capacity` bytes and their number. */
typedef struct smdp_store {
  void* context;
  int (*set)(void* context, const char* key, const char* value, size_t bytes);
  int (*get)(void* context, const char* key, char* value, size_t capacity, size_t* bytes, double timeout_s);
} smdp_store;

/* level 0: information, 1: warning, 2: notice. */
typedef void (*smdp_log)(void* context, int level, const char* text);

typedef struct smdp_engine_config {
  size_t size; /* sizeof(smdp_engine_config) */
  int rank;
  int world_size;
  /* Rank 0's host name or address, as MASTER_ADDR. The port is SMDP_RENDEZVOUS_PORT, or any with a store. */
  const char* master;
  const smdp_store* store; /* may be null */
  smdp_log log;            /* null: warnings and notices on standard error */
  void* log_context;
  /* Options that override the environment: names such as "SMDP_PIECE_KIB" and values in turn, ended by null.
   */
  const char* const* options;
  /* How long the ranks wait for each other, in seconds, if SMDP_RENDEZVOUS_TIMEOUT_S is not set; 0: the
   * default of the option. */
  double rendezvous_timeout_s;
} smdp_engine_config;

/* Reads the options from the environment, finds the other ranks and connects. Blocks until every rank is
 * connected or every rank fails with the same reason (at most SMDP_RENDEZVOUS_TIMEOUT_S, or the time in the
 * configuration). */
SMDP_API int smdp_engine_open(const smdp_engine_config* config, smdp_engine** engine, smdp_error* error);
/* Fails all pending operations, sends a goodbye, waits up to SMDP_CLOSE_TIMEOUT_S for the other ranks to
 * close too, and frees the engine when no thread is in smdp_operation_wait() any more, which returns. Does
 * nothing in a forked child. Groups may be destroyed later; calls on them are refused. Operations are
 * complete then; they may be tested and released later. */
SMDP_API void smdp_engine_close(smdp_engine* engine);
/* The first half of closing, for a rank that delays its own goodbye: waits until every other rank has sent
 * its goodbye or is lost, at most SMDP_CLOSE_TIMEOUT_S. */
SMDP_API void smdp_engine_await_others(smdp_engine* engine);
/* For a process that ends while its groups exist: fails all pending operations and sends a goodbye, and does
 * not wait. Errors of the other ranks then state that this rank has ended, and not that it destroyed a group.
 * smdp_engine_await_others() and smdp_engine_close() do the rest. */
SMDP_API void smdp_engine_depart(smdp_engine* engine);
/* Writes this rank's flight records, the last operations of all its groups, to `folder`/flight_<rank>; null:
 * to SMDP_TRACE_DIR. Its path goes to `path`, at most `capacity` bytes with the NUL. docs/how-to/slow-runs.md
 * describes the file. */
SMDP_API int smdp_engine_dump(smdp_engine* engine, const char* folder, char* path, size_t capacity,
                              smdp_error* error);
/* Fails all pending operations and cuts the connections without a goodbye: to the other ranks this process
 * has died. Every later call is refused; smdp_engine_close() then only frees the engine. */
SMDP_API void smdp_engine_abandon(smdp_engine* engine);

SMDP_API int smdp_engine_host_count(const smdp_engine* engine);
/* The number of the host that has this rank of the job; -1: there is no such rank. */
SMDP_API int smdp_engine_host_of(const smdp_engine* engine, int rank);
/* The name of the host with this number, as in error messages; lives as long as the engine. Null: there is no
 * such host. */
SMDP_API const char* smdp_engine_host_name(const smdp_engine* engine, int host);
/* The value of SMDP_LOCAL_REDUCER, which the adapters apply; lives as long as the engine. */
SMDP_API const char* smdp_engine_local_reducer(const smdp_engine* engine);
/* A part of this rank's shared memory (SMDP_REGISTERED_MIB), for as long as the engine lives; the caller
 * divides it. The other ranks of the host read the values of a call in it in place, so that a device can
 * copy them there. After a call that failed they may still read its memory: do not write to it again. Null
 * and 0 when the option is 0. */
SMDP_API int smdp_engine_registered_memory(smdp_engine* engine, void** memory, uint64_t* bytes,
                                           smdp_error* error);
/* This memory stays mapped after the engine is closed, until the process ends: a device may still use it. */
SMDP_API void smdp_engine_keep_memory(smdp_engine* engine);

/* A group of ranks of the job; `members` in the order of their rank within the group. Sends nothing. Every
 * member creates its groups of one name and one set of members in the same order. timeout_s 0:
 * SMDP_OPERATION_TIMEOUT_S. */
SMDP_API int smdp_group_create(smdp_engine* engine, const int* members, int count, const char* name,
                               double timeout_s, smdp_group** group, smdp_error* error);
/* Pending operations fail with SMDP_CLOSED on this rank, and with SMDP_PEER_LOST on the members that wait in
 * them or make the same call later. */
SMDP_API void smdp_group_destroy(smdp_group* group);
/* Fails the group on all its ranks: pending and later calls on it fail with SMDP_PEER_LOST and `reason`. */
SMDP_API void smdp_group_fail(smdp_group* group, const char* reason);

typedef void (*smdp_done)(void* context, const smdp_error* error);

#define SMDP_ANY_RANK (-1)

/* One message to or from another rank. Messages of one sender and one tag are received in the order in which
 * they were sent, by calls with the same number of bytes. */
typedef struct smdp_part {
  int peer;    /* rank within the group; of SMDP_RECV also SMDP_ANY_RANK */
  int receive; /* 0: send */
  void* memory;
  uint64_t bytes;
  int* source; /* may be null; where the sender's rank is written */
} smdp_part;

typedef struct smdp_call {
  size_t size; /* sizeof(smdp_call) */
  int collective;
  int dtype;
  int op;
  int root; /* rank within the group */
  uint64_t count;
  const void* input; /* aligned to an element */
  void* output;
  double timeout_s; /* 0: the group's */
  smdp_done done;   /* may be null; called once, on the engine's thread, for every call that was accepted */
  void* context;
  /* A buffer named by (step, index, count) instead of by the order of calls: `buffers` above 0. The ranks may
   * then submit the buffers of a step in different orders. Steps count from 0 in each group, indexes from 0
   * to buffers - 1; buffers begin in the order of their indexes. For SMDP_ALL_REDUCE. */
  uint32_t step;
  uint32_t index;
  uint32_t buffers;
  /* Not 0: the caller calls smdp_operation_wait() at once. Then its own thread does the engine's work, and no
   * other is woken. */
  uint32_t blocking;
  const smdp_part* parts; /* read before smdp_submit() returns */
  size_t part_count;
  uint32_t tag; /* of SMDP_SEND and SMDP_RECV; below 2^31 */
} smdp_call;

/* Starts a collective and returns at once. The memory belongs to the engine until it is complete. */
SMDP_API int smdp_submit(smdp_group* group, const smdp_call* call, smdp_operation** operation,
                         smdp_error* error);
/* Waits until the operation is complete and returns its result. SMDP_TIMEOUT after timeout_s (below 0:
 * until the operation's own deadline) means that the operation continues; smdp_operation_test() returns 0
 * then. */
SMDP_API int smdp_operation_wait(smdp_operation* operation, double timeout_s, smdp_error* error);
/* 1 when complete. */
SMDP_API int smdp_operation_test(const smdp_operation* operation);
/* Frees the handle of the operation, complete or not. An incomplete one continues, and its memory still
 * belongs to the engine. */
SMDP_API void smdp_operation_release(smdp_operation* operation);

/* The options, by index; the strings are static. Returns SMDP_INVALID beyond the last. */
typedef struct smdp_option {
  const char* name;
  const char* type;
  const char* unit;
  const char* default_value;
  const char* doc;
} smdp_option;
SMDP_API int smdp_option_info(int index, smdp_option* option);

/* When this process calls exit() or returns from main(), writes "exit STATUS\n" to the pipe and closes it,
 * then waits at most limit_s seconds until the child process has ended, and kills it. For a script: Python
 * runs its own exit functions without the status. The pipe belongs to the engine, which closes it in forked
 * children. The library must stay loaded. */
SMDP_API int smdp_report_exit(int pipe, int child, double limit_s, smdp_error* error);

#ifdef __cplusplus
}
#endif

#endif /* SMDP_ENGINE_H */
