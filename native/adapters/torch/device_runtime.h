// Functions of a device's own runtime that torch has no device-generic name for: those of the library that
// torch has loaded, found by name, so that the adapter needs no header of it and fits builds without it.
//
// CUDA's have the prefix "cuda"; those of a device of a torch extension the name of the extension.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/DeviceType.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <dlfcn.h>

#include <cstddef>
#include <string>

namespace smdp_torch {

class DeviceRuntime {
 public:
  explicit DeviceRuntime(c10::DeviceType type)
      : type_(type),
        prefix_(type == c10::DeviceType::PrivateUse1 ? c10::get_privateuse1_backend()
                                                     : c10::DeviceTypeName(type, true)) {}

  // Makes a device copy to and from this memory directly; "": done, otherwise why not.
  [[nodiscard]] std::string register_memory(void* memory, std::size_t bytes) const {
    constexpr unsigned kEveryContext = 1;  // cudaHostRegisterPortable
    const auto add = function<int(void*, std::size_t, unsigned)>("HostRegister");
    if (add == nullptr || function<int(void*)>("HostUnregister") == nullptr) {
      return "its runtime has no " + prefix_ + "HostRegister";
    }
    const int code = add(memory, bytes, kEveryContext);
    return code == 0 ? std::string() : prefix_ + "HostRegister: " + reason(code);
  }
  [[nodiscard]] std::string unregister_memory(void* memory) const {
    const int code = function<int(void*)>("HostUnregister")(memory);
    return code == 0 ? std::string() : prefix_ + "HostUnregister: " + reason(code);
  }

  // Exchanges the mode in which this thread's calls take the recording of a graph on other threads; null: the
  // runtime has no such mode.
  using ExchangeMode = int(int* mode);
  [[nodiscard]] ExchangeMode* exchange_capture_mode() const {
    return function<ExchangeMode>("ThreadExchangeStreamCaptureMode");
  }

  // Whether the stream records a graph instead of running its work.
  [[nodiscard]] bool is_capturing(const c10::Stream& stream) const {
    return is_capturing(*c10::impl::getDeviceGuardImpl(type_), stream);
  }

 private:
  // The name for it exists in newer versions of torch only.
  template <class Device>
  [[nodiscard]] bool is_capturing(const Device& device, const c10::Stream& stream) const {
    if constexpr (requires { device.isStreamCapturing(stream); }) {
      return device.isStreamCapturing(stream);
    } else if (type_ == c10::DeviceType::CUDA) {
      // A c10::cuda::CUDAStream holds a c10::Stream and nothing else.
      using Handle = void*(const c10::Stream*);
      const auto handle =
          reinterpret_cast<Handle*>(dlsym(RTLD_DEFAULT, "_ZNK3c104cuda10CUDAStream6streamEv"));
      const auto query = function<int(void*, int*)>("StreamIsCapturing");
      int status = 0;
      return handle != nullptr && query != nullptr && query(handle(&stream), &status) == 0 && status != 0;
    }
    return false;
  }

  template <class Signature>
  [[nodiscard]] Signature* function(const char* name) const {
    return reinterpret_cast<Signature*>(dlsym(RTLD_DEFAULT, (prefix_ + name).c_str()));
  }

  // Also forgets the error: torch would report it for its next kernel.
  [[nodiscard]] std::string reason(int code) const {
    const auto text = function<const char*(int)>("GetErrorString");
    if (const auto forget = function<int()>("GetLastError")) {
      forget();
    }
    return text == nullptr ? "error " + std::to_string(code) : text(code);
  }

  c10::DeviceType type_;
  std::string prefix_;
};

// Lets this thread query events while another thread records a graph. In CUDA's default mode, such a query is
// refused, and ends the recording. After a DeviceGuard: without a device, the calls use the first one.
class QueriesDuringCapture {
 public:
  explicit QueriesDuringCapture(c10::DeviceType type)
      : exchange_(DeviceRuntime(type).exchange_capture_mode()) {
    exchange();
  }
  QueriesDuringCapture(const QueriesDuringCapture&) = delete;
  QueriesDuringCapture& operator=(const QueriesDuringCapture&) = delete;
  ~QueriesDuringCapture() { exchange(); }

 private:
  void exchange() {
    if (exchange_ != nullptr) {
      exchange_(&mode_);
    }
  }

  DeviceRuntime::ExchangeMode* exchange_;
  int mode_ = 1;  // cudaStreamCaptureModeThreadLocal, then the mode of before
};

}  // namespace smdp_torch
