#include "kernels/copy.h"

#include <cstdint>
#include <cstring>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace smdp {

void copy(std::span<const std::byte> from, std::span<std::byte> to) {
  if (!from.empty()) {
    std::memcpy(to.data(), from.data(), from.size());
  }
}

#if defined(__x86_64__)

void copy_streaming(std::span<const std::byte> from, std::span<std::byte> to) {
  constexpr std::size_t kLine = 64;
  const std::size_t ahead = (kLine - reinterpret_cast<std::uintptr_t>(to.data()) % kLine) % kLine;
  if (from.size() < ahead + kLine) {
    std::memcpy(to.data(), from.data(), from.size());
    return;
  }
  std::memcpy(to.data(), from.data(), ahead);
  const std::size_t lines = (from.size() - ahead) / kLine;
  const std::byte* source = from.data() + ahead;
  std::byte* target = to.data() + ahead;
  for (std::size_t line = 0; line < lines; ++line, source += kLine, target += kLine) {
    const auto* in = reinterpret_cast<const __m128i*>(source);
    auto* out = reinterpret_cast<__m128i*>(target);
    _mm_stream_si128(out, _mm_loadu_si128(in));
    _mm_stream_si128(out + 1, _mm_loadu_si128(in + 1));
    _mm_stream_si128(out + 2, _mm_loadu_si128(in + 2));
    _mm_stream_si128(out + 3, _mm_loadu_si128(in + 3));
  }
  std::memcpy(target, source, from.size() - ahead - lines * kLine);
  _mm_sfence();  // before the copy is reported as done
}

#else

void copy_streaming(std::span<const std::byte> from, std::span<std::byte> to) {
  std::memcpy(to.data(), from.data(), from.size());
}

#endif

}  // namespace smdp
