// The c10d backend "smddp": translates torch's calls into the engine's C interface, and nothing else.
//
// Threads. A collective is submitted on the caller's thread and returns a Work. The engine's thread reports
// its end; it must not take Python's lock, and completing a torch future may run Python callbacks (DDP's
// hooks), so a thread of the adapter's own completes futures. Work::wait() does not depend on that thread: it
// waits in the engine.
//
// Ownership. One engine per process and rendezvous, shared by all groups whose ranks it covers; a Work keeps
// its tensors until the engine is done with them. The only file with torch headers: they cost half a minute
// each.
#include <ATen/ATen.h>
#include <pybind11/chrono.h>
#include <smdp/engine.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/version.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

namespace smdp_torch {
namespace {

using c10d::Store;
using c10d::Work;
using Tensors = std::vector<at::Tensor>;

constexpr const char* kName = "smddp";

[[noreturn]] void unsupported(const std::string& what) {
  TORCH_CHECK(false, "smddp: ", what, " is not supported yet");
}

// DistBackendError is what torch raises for a failed collective; the engine's sentence says who, where and
// when.
[[noreturn]] void raise(const smdp_error& error) {
  if (error.code == SMDP_INVALID) {
    TORCH_CHECK_VALUE(false, "smddp: ", error.message);
  }
  TORCH_CHECK_WITH(DistBackendError, false, "smddp: ", error.message);
}

// Completes futures, in the order in which operations end. Every Work holds it, so its last owner may be one
// of its own tasks: the thread keeps it alive and is not joined; it ends when it was told to and nothing is
// left to do.
class Completer : public std::enable_shared_from_this<Completer> {
 public:
  static std::shared_ptr<Completer> start() {
    auto made = std::make_shared<Completer>();
    std::thread([made] { made->run(); }).detach();
    return made;
  }
  void post(std::function<void()> task) {
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    changed_.notify_one();
  }
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_one();
  }

 private:
  void run() {
    for (;;) {
      std::function<void()> task;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
        if (tasks_.empty()) {
          return;
        }
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      task();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool stopping_ = false;
};

int store_set(void* context, const char* key, const char* value, size_t bytes) {
  try {
    const auto* begin = reinterpret_cast<const uint8_t*>(value);
    static_cast<Store*>(context)->set(key, std::vector<uint8_t>(begin, begin + bytes));
    return 0;
  } catch (const std::exception&) {
    return 1;
  }
}

int store_get(void* context, const char* key, char* value, size_t capacity, size_t* bytes, double timeout_s) {
  try {
    auto* store = static_cast<Store*>(context);
    store->wait({key}, std::chrono::milliseconds(static_cast<int64_t>(timeout_s * 1000) + 1));
    const std::vector<uint8_t> found = store->get(key);
    *bytes = found.size();
    std::copy_n(found.begin(), std::min(found.size(), capacity), value);
    return 0;
  } catch (const std::exception&) {
    return 1;
  }
}

// The engine of this process, alive while a group uses it.
struct Session {
  smdp_engine* engine = nullptr;
  std::shared_ptr<Completer> completer;
  std::vector<int> ranks;  // in the order of the engine's ranks, as torch's global ranks

  Session(Store& store, int rank, int size, std::vector<int> global_ranks) : ranks(std::move(global_ranks)) {
    smdp_store adapter{&store, store_set, store_get};
    smdp_engine_config config{};
    config.size = sizeof(config);
    config.rank = rank;
    config.world_size = size;
    config.master = std::getenv("MASTER_ADDR");
    config.store = &adapter;
    smdp_error error{};
    if (smdp_engine_open(&config, &engine, &error) != SMDP_OK) {
      raise(error);
    }
    completer = Completer::start();
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session() {
    smdp_engine_close(engine);  // completes what is pending
    completer->stop();
  }
};

std::mutex session_mutex;
std::weak_ptr<Session> current_session;

// The engine that covers these global ranks; empty ranks mean "all", that is the default group, which opens
// it.
std::shared_ptr<Session> find_session(const c10::intrusive_ptr<Store>& store, int rank, int size,
                                      std::vector<int> global_ranks) {
  const std::lock_guard lock(session_mutex);
  if (global_ranks.empty()) {
    global_ranks.resize(static_cast<size_t>(size));
    std::iota(global_ranks.begin(), global_ranks.end(), 0);
  }
  std::shared_ptr<Session> session = current_session.lock();
  if (session) {
    const bool covered = std::all_of(global_ranks.begin(), global_ranks.end(), [&](int wanted) {
      return std::find(session->ranks.begin(), session->ranks.end(), wanted) != session->ranks.end();
    });
    if (covered) {
      return session;
    }
  }
  session = std::make_shared<Session>(*store, rank, size, std::move(global_ranks));
  current_session = session;
  return session;
}

smdp_dtype dtype_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return SMDP_FLOAT32;
    case at::kDouble:
      return SMDP_FLOAT64;
    case at::kHalf:
      return SMDP_FLOAT16;
    case at::kBFloat16:
      return SMDP_BFLOAT16;
    case at::kChar:
      return SMDP_INT8;
    case at::kShort:
      return SMDP_INT16;
    case at::kInt:
      return SMDP_INT32;
    case at::kLong:
      return SMDP_INT64;
    case at::kByte:
      return SMDP_UINT8;
    case at::kBool:
      return SMDP_BOOL;
    default:
      unsupported(std::string("element type ") + c10::toString(tensor.scalar_type()));
  }
}

smdp_reduce_op op_of(const c10d::ReduceOp& op) {
  switch (static_cast<c10d::ReduceOp::RedOpType>(op)) {
    case c10d::ReduceOp::SUM:
      return SMDP_SUM;
    case c10d::ReduceOp::AVG:
      return SMDP_AVG;
    case c10d::ReduceOp::MIN:
      return SMDP_MIN;
    case c10d::ReduceOp::MAX:
      return SMDP_MAX;
    case c10d::ReduceOp::PRODUCT:
      return SMDP_PRODUCT;
    case c10d::ReduceOp::BAND:
      return SMDP_BAND;
    case c10d::ReduceOp::BOR:
      return SMDP_BOR;
    case c10d::ReduceOp::BXOR:
      return SMDP_BXOR;
    default:
      unsupported("this reduction (PREMUL_SUM)");
  }
}

void check(const at::Tensor& tensor) {
  if (!tensor.device().is_cpu()) {
    unsupported("a tensor on " + tensor.device().str() + " (CPU tensors are)");
  }
  if (tensor.layout() != at::kStrided) {
    unsupported("a sparse tensor");
  }
}

const at::Tensor& only(const Tensors& tensors) {
  TORCH_CHECK_VALUE(tensors.size() == 1, "smddp: one tensor per call, got ", tensors.size());
  check(tensors[0]);
  return tensors[0];
}

class EngineWork final : public Work {
 public:
  EngineWork(std::shared_ptr<Completer> completer, int rank, c10d::OpType type, const char* title,
             Tensors results)
      : Work(rank, type, title),
        completer_(std::move(completer)),
        results_(std::move(results)),
        future_(c10::make_intrusive<at::ivalue::Future>(c10::ListType::create(c10::TensorType::get()))) {}
  ~EngineWork() override {
    for (smdp_operation* operation : operations_) {
      smdp_operation_release(operation);
    }
  }

  // Starts one call; several may be started before arm(). What was accepted keeps this object until it ends.
  void submit(smdp_group* group, smdp_call call) {
    auto* self = new Ticket{c10::intrusive_ptr<EngineWork>::reclaim_copy(this)};
    call.size = sizeof(call);
    call.done = [](void* context, const smdp_error* error) {
      const std::unique_ptr<Ticket> ticket(static_cast<Ticket*>(context));
      ticket->work->one_done(*error);
    };
    call.context = self;
    {
      const std::lock_guard lock(state_mutex_);
      ++pending_;
    }
    smdp_operation* operation = nullptr;
    smdp_error error{};
    if (smdp_submit(group, &call, &operation, &error) != SMDP_OK) {
      delete self;
      {
        const std::lock_guard lock(state_mutex_);
        --pending_;
      }
      raise(error);
    }
    operations_.push_back(operation);
  }

  // All calls are submitted: the last one's end completes the work. `after` runs then, before anybody sees
  // the results.
  void arm(std::function<void()> after) {
    after_ = std::move(after);
    finish_one(smdp_error{});  // the count began at one
  }

  bool wait(std::chrono::milliseconds timeout) override {
    std::unique_lock lock(state_mutex_);
    const auto over = [this] { return over_; };
    if (timeout == c10d::kUnsetTimeout || timeout.count() <= 0) {
      changed_.wait(lock, over);  // the engine's deadline ends every operation
    } else if (!changed_.wait_for(lock, timeout, over)) {
      TORCH_CHECK_WITH(DistBackendError, false, "smddp: wait() gave up after ", timeout.count(),
                       " ms; the operation goes on");
    }
    if (failure_.code != SMDP_OK) {
      const smdp_error error = failure_;
      lock.unlock();
      raise(error);
    }
    return true;
  }
  bool isCompleted() override {
    const std::lock_guard lock(state_mutex_);
    return over_;
  }
  bool isSuccess() const override {
    const std::lock_guard lock(state_mutex_);
    return over_ && failure_.code == SMDP_OK;
  }
  Tensors result() override { return results_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  void abort() override { unsupported("aborting a single operation"); }

 private:
  struct Ticket {
    c10::intrusive_ptr<EngineWork> work;
  };

  // On the engine's thread.
  void one_done(const smdp_error& error) { finish_one(error); }

  void finish_one(const smdp_error& error) {
    bool last = false;
    {
      const std::lock_guard lock(state_mutex_);
      if (error.code != SMDP_OK && failure_.code == SMDP_OK) {
        failure_ = error;
      }
      last = --pending_ == 0;
    }
    if (!last) {
      return;
    }
    completer_->post([self = c10::intrusive_ptr<EngineWork>::reclaim_copy(this)] { self->conclude(); });
  }

  // On the completer's thread.
  void conclude() {
    if (failure_.code == SMDP_OK && after_) {
      try {
        after_();
      } catch (const std::exception& caught) {
        failure_.code = SMDP_INTERNAL;
        std::snprintf(failure_.message, sizeof(failure_.message), "%s", caught.what());
      }
    }
    after_ = nullptr;
    {
      const std::lock_guard lock(state_mutex_);
      over_ = true;
    }
    changed_.notify_all();
    if (failure_.code == SMDP_OK) {
      future_->markCompleted(at::IValue(results_));
    } else {
      future_->setError(std::make_exception_ptr(c10::DistBackendError(
          {__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, std::string("smddp: ") + failure_.message)));
    }
  }

  std::shared_ptr<Completer> completer_;
  Tensors results_;
  c10::intrusive_ptr<at::ivalue::Future> future_;
  std::vector<smdp_operation*> operations_;
  std::function<void()> after_;
  mutable std::mutex state_mutex_;
  std::condition_variable changed_;
  int pending_ = 1;
  bool over_ = false;
  smdp_error failure_{};
};

class EngineBackend final : public c10d::Backend {
 public:
  EngineBackend(const c10::intrusive_ptr<Store>& store, int rank, int size, std::vector<int> global_ranks,
                const std::string& name, std::chrono::milliseconds timeout)
      : Backend(rank, size), store_(store), session_(find_session(store, rank, size, global_ranks)) {
    if (global_ranks.empty()) {
      global_ranks = session_->ranks;
    }
    std::vector<int> members;
    for (const int global : global_ranks) {
      const auto found = std::find(session_->ranks.begin(), session_->ranks.end(), global);
      members.push_back(static_cast<int>(found - session_->ranks.begin()));
    }
    smdp_error error{};
    const double timeout_s = std::chrono::duration<double>(timeout).count();
    if (smdp_group_create(session_->engine, members.data(), static_cast<int>(members.size()), name.c_str(),
                          timeout_s, &group_, &error) != SMDP_OK) {
      raise(error);
    }
  }
  ~EngineBackend() override { close(); }

  const std::string getBackendName() const override { return kName; }

  c10::intrusive_ptr<Work> allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    return reduce_one(only(tensors), SMDP_ALL_REDUCE, options.reduceOp, 0, c10d::OpType::ALLREDUCE,
                      "smddp:all_reduce", options.timeout, tensors);
  }

  c10::intrusive_ptr<Work> allreduce_coalesced(Tensors& tensors,
                                               const c10d::AllreduceCoalescedOptions& options) override {
    auto work = make(c10d::OpType::COALESCED, "smddp:all_reduce_coalesced", tensors);
    auto flats = std::make_shared<Tensors>();
    for (const at::Tensor& tensor : tensors) {
      check(tensor);
      flats->push_back(tensor.contiguous());
      smdp_call call = call_for(SMDP_ALL_REDUCE, flats->back(), options.timeout);
      call.op = op_of(options.reduceOp);
      call.output = flats->back().data_ptr();
      work->submit(group_, call);
    }
    work->arm([tensors, flats] { copy_back(*flats, tensors); });
    return work;
  }

  c10::intrusive_ptr<Work> reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    return reduce_one(only(tensors), SMDP_REDUCE, options.reduceOp, static_cast<int>(options.rootRank),
                      c10d::OpType::REDUCE, "smddp:reduce", options.timeout, tensors);
  }

  c10::intrusive_ptr<Work> broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    const at::Tensor& tensor = only(tensors);
    auto flat = std::make_shared<Tensors>(Tensors{tensor.contiguous()});
    auto work = make(c10d::OpType::BROADCAST, "smddp:broadcast", tensors);
    smdp_call call = call_for(SMDP_BROADCAST, flat->front(), options.timeout);
    call.root = static_cast<int>(options.rootRank);
    call.output = flat->front().data_ptr();
    work->submit(group_, call);
    work->arm([tensors, flat] { copy_back(*flat, tensors); });
    return work;
  }

  c10::intrusive_ptr<Work> allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                     const c10d::AllgatherOptions& options) override {
    TORCH_CHECK_VALUE(outputs.size() == 1 && outputs[0].size() == static_cast<size_t>(getSize()),
                      "smddp: all_gather needs one output per rank");
    const at::Tensor input = only(inputs).contiguous();
    for (const at::Tensor& output : outputs[0]) {
      check(output);
      TORCH_CHECK_VALUE(output.numel() == input.numel() && output.scalar_type() == input.scalar_type(),
                        "smddp: all_gather's outputs must have the size and type of the input");
    }
    const at::Tensor gathered = at::empty({getSize(), input.numel()}, input.options());
    auto work = make(c10d::OpType::ALLGATHER, "smddp:all_gather", outputs[0]);
    smdp_call call = call_for(SMDP_ALL_GATHER, input, options.timeout);
    call.output = gathered.data_ptr();
    work->submit(group_, call);
    work->arm([results = outputs[0], gathered, input] {
      const at::NoGradGuard no_grad;
      for (size_t i = 0; i < results.size(); ++i) {
        results[i].copy_(gathered[static_cast<int64_t>(i)].view(results[i].sizes()));
      }
    });
    return work;
  }

  c10::intrusive_ptr<Work> _allgather_base(at::Tensor& output, at::Tensor& input,
                                           const c10d::AllgatherOptions& options) override {
    check(output);
    check(input);
    TORCH_CHECK_VALUE(
        output.numel() == input.numel() * getSize() && output.scalar_type() == input.scalar_type(),
        "smddp: all_gather_into_tensor needs an output of the input's size times ", getSize());
    const at::Tensor source = input.contiguous();
    const at::Tensor target = output.contiguous();
    auto work = make(c10d::OpType::_ALLGATHER_BASE, "smddp:all_gather_into_tensor", {output});
    smdp_call call = call_for(SMDP_ALL_GATHER, source, options.timeout);
    call.output = target.data_ptr();
    work->submit(group_, call);
    work->arm([output, target, source] { copy_back({target}, {output}); });
    return work;
  }

  c10::intrusive_ptr<Work> barrier(const c10d::BarrierOptions& options) override {
    auto work = make(c10d::OpType::BARRIER, "smddp:barrier", {});
    smdp_call call{};
    call.collective = SMDP_BARRIER;
    call.timeout_s = seconds_of(options.timeout);
    work->submit(group_, call);
    work->arm(nullptr);
    return work;
  }

  // What the engine does not offer yet, said in one form.
  c10::intrusive_ptr<Work> allreduce_sparse(Tensors&, const c10d::AllreduceOptions&) override {
    no("all_reduce of a sparse tensor");
  }
  c10::intrusive_ptr<Work> allgather_coalesced(std::vector<Tensors>&, Tensors&,
                                               const c10d::AllgatherOptions&) override {
    no("all_gather_coalesced");
  }
  c10::intrusive_ptr<Work> allgather_into_tensor_coalesced(Tensors&, Tensors&,
                                                           const c10d::AllgatherOptions&) override {
    no("all_gather_into_tensor_coalesced");
  }
  c10::intrusive_ptr<Work> gather(std::vector<Tensors>&, Tensors&, const c10d::GatherOptions&) override {
    no("gather");
  }
  c10::intrusive_ptr<Work> scatter(Tensors&, std::vector<Tensors>&, const c10d::ScatterOptions&) override {
    no("scatter");
  }
  c10::intrusive_ptr<Work> reduce_scatter(Tensors&, std::vector<Tensors>&,
                                          const c10d::ReduceScatterOptions&) override {
    no("reduce_scatter");
  }
  c10::intrusive_ptr<Work> _reduce_scatter_base(at::Tensor&, at::Tensor&,
                                                const c10d::ReduceScatterOptions&) override {
    no("reduce_scatter_tensor");
  }
  c10::intrusive_ptr<Work> reduce_scatter_tensor_coalesced(Tensors&, Tensors&,
                                                           const c10d::ReduceScatterOptions&) override {
    no("reduce_scatter_tensor_coalesced");
  }
  c10::intrusive_ptr<Work> alltoall_base(at::Tensor&, at::Tensor&, std::vector<int64_t>&,
                                         std::vector<int64_t>&, const c10d::AllToAllOptions&) override {
    no("all_to_all_single");
  }
  c10::intrusive_ptr<Work> alltoall(Tensors&, Tensors&, const c10d::AllToAllOptions&) override {
    no("all_to_all");
  }
  c10::intrusive_ptr<Work> send(Tensors&, int, int) override { no("send"); }
  c10::intrusive_ptr<Work> recv(Tensors&, int, int) override { no("recv"); }
  c10::intrusive_ptr<Work> recvAnysource(Tensors&, int) override { no("recv from any source"); }
  void monitoredBarrier(const c10d::BarrierOptions&, bool) override {
    no("monitored_barrier (barrier names the late ranks by itself)");
  }

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 8)
  void shutdown() override { close(); }
  void abort() override { close(); }
#endif

 private:
  [[noreturn]] static void no(const std::string& what) { unsupported(what); }

  static double seconds_of(std::chrono::milliseconds timeout) {
    return timeout == c10d::kUnsetTimeout || timeout.count() <= 0
               ? 0
               : std::chrono::duration<double>(timeout).count();
  }

  // Tensors with gaps travel as a contiguous copy.
  static void copy_back(const Tensors& flats, const Tensors& tensors) {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < flats.size(); ++i) {
      if (flats[i].data_ptr() != tensors[i].data_ptr()) {
        tensors[i].copy_(flats[i]);
      }
    }
  }

  c10::intrusive_ptr<EngineWork> make(c10d::OpType type, const char* title, Tensors results) {
    TORCH_CHECK(group_ != nullptr, "smddp: this process group was destroyed");
    return c10::make_intrusive<EngineWork>(session_->completer, getRank(), type, title, std::move(results));
  }

  static smdp_call call_for(smdp_collective collective, const at::Tensor& tensor,
                            std::chrono::milliseconds timeout) {
    smdp_call call{};
    call.collective = collective;
    call.dtype = dtype_of(tensor);
    call.count = static_cast<uint64_t>(tensor.numel());
    call.input = tensor.data_ptr();
    call.timeout_s = seconds_of(timeout);
    return call;
  }

  c10::intrusive_ptr<Work> reduce_one(const at::Tensor& tensor, smdp_collective collective,
                                      const c10d::ReduceOp& op, int root, c10d::OpType type,
                                      const char* title, std::chrono::milliseconds timeout,
                                      const Tensors& results) {
    auto flat = std::make_shared<Tensors>(Tensors{tensor.contiguous()});
    auto work = make(type, title, results);
    smdp_call call = call_for(collective, flat->front(), timeout);
    call.op = op_of(op);
    call.root = root;
    call.output = flat->front().data_ptr();
    work->submit(group_, call);
    work->arm([results, flat] { copy_back(*flat, results); });
    return work;
  }

  void close() {
    const std::lock_guard lock(close_mutex_);
    if (group_ != nullptr) {
      smdp_group_destroy(group_);
      group_ = nullptr;
    }
    if (session_) {
      // Closing waits for other ranks, and Python may hold its lock here.
      if (PyGILState_Check() != 0) {
        const pybind11::gil_scoped_release release;
        session_.reset();
      } else {
        session_.reset();
      }
    }
  }

  c10::intrusive_ptr<Store> store_;
  std::shared_ptr<Session> session_;
  smdp_group* group_ = nullptr;
  std::mutex close_mutex_;
};

c10::intrusive_ptr<c10d::Backend> create(const c10::intrusive_ptr<Store>& store, int rank, int size,
                                         std::vector<int> global_ranks, const std::string& name,
                                         std::chrono::milliseconds timeout) {
  TORCH_CHECK(smdp_abi_version() == SMDP_ABI_VERSION, "smddp: libsmdp_engine.so has interface version ",
              smdp_abi_version(), ", the adapter needs ", SMDP_ABI_VERSION, ": reinstall smdp-engine");
  return c10::make_intrusive<EngineBackend>(store, rank, size, std::move(global_ranks), name, timeout);
}

}  // namespace
}  // namespace smdp_torch

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def("create", &smdp_torch::create, pybind11::arg("store"), pybind11::arg("rank"),
             pybind11::arg("size"), pybind11::arg("global_ranks"), pybind11::arg("name"),
             pybind11::arg("timeout"), pybind11::call_guard<pybind11::gil_scoped_release>());
  module.attr("built_for") = SMDP_TORCH_BUILT_FOR;
}
