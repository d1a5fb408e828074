/* The C interface of the engine: all that adapters may know of it.
 *
 * Nothing of C++ crosses this line: adapters are built with the C++ ABI of their framework, the engine with its own.
 */
#ifndef SMDP_ENGINE_H
#define SMDP_ENGINE_H

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

/* The SMDP_ABI_VERSION the library was built with. An adapter compares it with its own before any other call. */
SMDP_API int smdp_abi_version(void);

/* The engine's build, as "0.1.0"; a static string. Ranks with different builds refuse each other. */
SMDP_API const char* smdp_engine_build(void);

#ifdef __cplusplus
}
#endif

#endif /* SMDP_ENGINE_H */
