#include <smdp/engine.h>

int smdp_abi_version(void) { return SMDP_ABI_VERSION; }

const char* smdp_engine_build(void) { return SMDP_ENGINE_BUILD; }
