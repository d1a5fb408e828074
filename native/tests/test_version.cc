#include <smdp/engine.h>

#include <cstdio>
#include <cstring>

int main() {
  if (smdp_abi_version() != SMDP_ABI_VERSION) {
    std::fprintf(stderr, "library has ABI %d, header %d\n", smdp_abi_version(), SMDP_ABI_VERSION);
    return 1;
  }
  if (std::strlen(smdp_engine_build()) == 0) {
    std::fprintf(stderr, "the build has no name\n");
    return 1;
  }
  return 0;
}
