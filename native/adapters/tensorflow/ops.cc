// TensorFlow's operations over the engine, and the functions by which Python opens it.
//
// A kernel passes its tensors to a lane or a sequence and returns; TensorFlow keeps them until the kernel
// calls `done`, on a thread of the completer. No thread of TensorFlow waits for the network.
//
// On a GPU the kernels request their tensors in host memory: TensorFlow copies them there and back on streams
// of its own, beside the computation, and the build needs no CUDA.
//
// The only file that is compiled with TensorFlow's headers.
#include <tensorflow/core/framework/common_shape_fns.h>
#include <tensorflow/core/framework/op.h>
#include <tensorflow/core/framework/op_kernel.h>
#include <tensorflow/core/framework/shape_inference.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "../common/completer.h"
#include "session.h"

namespace smdp_tensorflow {
namespace {

namespace tf = tensorflow;
using tf::AsyncOpKernel;
using tf::OpKernelConstruction;
using tf::OpKernelContext;
using tf::Tensor;
using tf::TensorShape;
using tf::shape_inference::InferenceContext;

constexpr char kNotOpen[] = "call init() of smdistributed.dataparallel.tensorflow first";

// Never Unavailable or Aborted: TensorFlow's monitored sessions would restart for ever.
auto status_of(const smdp_error& error) {
  const std::string text = std::string("smdp: ") + error.message;
  switch (error.code) {
    case SMDP_INVALID:
    case SMDP_MISMATCH:
      return tf::errors::InvalidArgument(text);
    case SMDP_TIMEOUT:
      return tf::errors::DeadlineExceeded(text);
    case SMDP_CLOSED:
      return tf::errors::Cancelled(text);
    case SMDP_UNSUPPORTED:
      return tf::errors::Unimplemented(text);
    case SMDP_EXHAUSTED:
      return tf::errors::ResourceExhausted(text);
    default:
      return tf::errors::Internal(text);
  }
}

std::optional<smdp_dtype> dtype_of(const Tensor& tensor) {
  switch (tensor.dtype()) {
    case tf::DT_FLOAT:
      return SMDP_FLOAT32;
    case tf::DT_DOUBLE:
      return SMDP_FLOAT64;
    case tf::DT_HALF:
      return SMDP_FLOAT16;
    case tf::DT_BFLOAT16:
      return SMDP_BFLOAT16;
    case tf::DT_INT8:
      return SMDP_INT8;
    case tf::DT_INT16:
      return SMDP_INT16;
    case tf::DT_INT32:
      return SMDP_INT32;
    case tf::DT_INT64:
      return SMDP_INT64;
    case tf::DT_UINT8:
      return SMDP_UINT8;
    case tf::DT_BOOL:
      return SMDP_BOOL;
    default:
      return std::nullopt;
  }
}

const void* memory_of(const Tensor& tensor) { return tensor.tensor_data().data(); }
void* memory_to_fill(Tensor* tensor) { return const_cast<char*>(tensor->tensor_data().data()); }

// Called when another operation of TensorFlow's step fails.
class Cancellation {
 public:
  explicit Cancellation(OpKernelContext* context) : manager_(context->cancellation_manager()) {}
  // False: an operation has failed already.
  bool call(std::function<void()> cancel) {
    if (manager_ == nullptr) {
      return true;
    }
    token_ = manager_->get_cancellation_token();
    return manager_->RegisterCallback(token_, std::move(cancel));
  }
  void forget() {
    if (manager_ != nullptr) {
      manager_->DeregisterCallback(token_);
    }
  }

 private:
  tf::CancellationManager* manager_;
  tf::CancellationToken token_ = 0;
};

// Ends a kernel with the status of its context, once.
Ended end_of(OpKernelContext* context, AsyncOpKernel::DoneCallback done, Cancellation cancellation) {
  return [context, done = std::move(done), cancellation](const smdp_error& error) mutable {
    cancellation.forget();
    if (error.code != SMDP_OK) {
      context->SetStatus(status_of(error));
    }
    done();
  };
}

const smdp_error kCancelled = failure(
    SMDP_CLOSED,
    "a step was given up because another operation of it failed on this rank, and the ranks' steps do "
    "not fit together since: start the job again, from a checkpoint");

smdp_reduce_op op_of(const std::string& name) {
  return name == "average" ? SMDP_AVG : name == "min" ? SMDP_MIN : name == "max" ? SMDP_MAX : SMDP_SUM;
}

class AllReduce : public AsyncOpKernel {
 public:
  explicit AllReduce(OpKernelConstruction* construction) : AsyncOpKernel(construction) {
    std::string reduction;
    int64_t bytes = 0;
    OP_REQUIRES_OK(construction, construction->GetAttr("lane", &name_.lane));
    OP_REQUIRES_OK(construction, construction->GetAttr("among", &name_.among));
    OP_REQUIRES_OK(construction, construction->GetAttr("described", &name_.described));
    OP_REQUIRES_OK(construction, construction->GetAttr("index", &index_));
    OP_REQUIRES_OK(construction, construction->GetAttr("count", &count_));
    OP_REQUIRES_OK(construction, construction->GetAttr("trace", &trace_));
    OP_REQUIRES_OK(construction, construction->GetAttr("reduction", &reduction));
    OP_REQUIRES_OK(construction, construction->GetAttr("buffer_bytes", &bytes));
    OP_REQUIRES(construction, index_ + construction->num_inputs() <= count_,
                tf::errors::InvalidArgument("smdp: gradient ", index_, " of ", count_));
    op_ = op_of(reduction);
    buffer_bytes_ = static_cast<std::size_t>(bytes);
  }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    const auto session = Session::current();
    OP_REQUIRES_ASYNC(context, session, tf::errors::FailedPrecondition(kNotOpen), done);
    std::vector<Gradient> gradients;
    for (int i = 0; i < context->num_inputs(); ++i) {
      const Tensor& input = context->input(i);
      const auto dtype = dtype_of(input);
      OP_REQUIRES_ASYNC(context, dtype,
                        tf::errors::InvalidArgument("smdp: elements of type ",
                                                    tf::DataTypeString(input.dtype()), " cannot be reduced"),
                        done);
      Tensor* output = nullptr;
      OP_REQUIRES_OK_ASYNC(context, context->forward_input_or_allocate_output({i}, i, input.shape(), &output),
                           done);
      gradients.push_back({*dtype,
                           static_cast<uint64_t>(input.NumElements()),
                           memory_of(input),
                           memory_to_fill(output),
                           {},
                           static_cast<uint64_t>(trace_)});
    }
    smdp_error error{};
    const auto lane = session->lane(name_, {static_cast<uint32_t>(count_), op_, buffer_bytes_, 0}, &error);
    OP_REQUIRES_ASYNC(context, lane, status_of(error), done);
    Cancellation cancellation(context);
    OP_REQUIRES_ASYNC(context, cancellation.call([lane] { lane->fail(kCancelled); }), status_of(kCancelled),
                      done);
    const auto all = std::make_shared<Together>(context->num_inputs(), end_of(context, done, cancellation));
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      gradients[i].ended = all->part();
      lane->add(static_cast<uint32_t>(index_) + static_cast<uint32_t>(i), std::move(gradients[i]));
    }
  }

 private:
  LaneName name_;
  int index_ = 0;
  int count_ = 1;
  int64_t trace_ = 0;
  smdp_reduce_op op_ = SMDP_AVG;
  std::size_t buffer_bytes_ = 0;
};

// For operations that only move data: types that the engine cannot add are bytes.
smdp_call moved(smdp_collective what, const Tensor& tensor, int64_t elements) {
  const auto dtype = dtype_of(tensor);
  const std::size_t element = tf::DataTypeSize(tensor.dtype());
  smdp_call call{};
  call.collective = what;
  call.dtype = dtype.value_or(SMDP_UINT8);
  call.count = static_cast<uint64_t>(elements) * (dtype ? 1 : element);
  return call;
}

// A kernel over a sequence.
class Sequenced : public AsyncOpKernel {
 public:
  explicit Sequenced(OpKernelConstruction* construction) : AsyncOpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("sequence", &sequence_));
  }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    const auto session = Session::current();
    OP_REQUIRES_ASYNC(context, session, tf::errors::FailedPrecondition(kNotOpen), done);
    smdp_error error{};
    const auto sequence = session->sequence(sequence_, &error);
    OP_REQUIRES_ASYNC(context, sequence, status_of(error), done);
    const std::string refused = refusal(*context);
    OP_REQUIRES_ASYNC(context, refused.empty(), tf::errors::InvalidArgument("smdp: ", refused), done);
    Cancellation cancellation(context);
    const auto cancel = [sequence] { sequence->fail(kCancelled); };
    OP_REQUIRES_ASYNC(context, cancellation.call(cancel), status_of(kCancelled), done);
    // Not the session itself: it would own an operation that owns the session.
    const Ranks ranks{session->rank(), session->world_size()};
    sequence->add(
        [this, context, ranks](Group& group, Ended over) { start(context, ranks, group, std::move(over)); },
        end_of(context, done, cancellation));
  }

 protected:
  struct Ranks {
    int own = 0;
    int all = 1;
  };

  // Why the operation is invalid, checked before any rank takes part; empty if it is valid.
  [[nodiscard]] virtual std::string refusal(OpKernelContext& /*context*/) const { return ""; }
  virtual void start(OpKernelContext* context, Ranks ranks, Group& group, Ended over) = 0;

 private:
  std::string sequence_;
};

// Ends the operation when TensorFlow returns an error.
#define SMDP_OK_OR_OVER(status, over)                    \
  do {                                                   \
    const auto found = (status);                         \
    if (!found.ok()) {                                   \
      (over)(failure(SMDP_EXHAUSTED, found.ToString())); \
      return;                                            \
    }                                                    \
  } while (false)

class Broadcast : public Sequenced {
 public:
  explicit Broadcast(OpKernelConstruction* construction) : Sequenced(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("root", &root_));
  }

 protected:
  void start(OpKernelContext* context, Ranks ranks, Group& group, Ended over) override {
    std::vector<smdp_call> calls;
    for (int i = 0; i < context->num_inputs(); ++i) {
      const Tensor& input = context->input(i);
      Tensor* output = nullptr;
      SMDP_OK_OR_OVER(context->forward_input_or_allocate_output({i}, i, input.shape(), &output), over);
      calls.push_back(moved(SMDP_BROADCAST, input, input.NumElements()));
      calls.back().root = root_;
      calls.back().input = ranks.own == root_ ? memory_of(input) : nullptr;
      calls.back().output = memory_to_fill(output);
    }
    const auto all = std::make_shared<Together>(context->num_inputs(), std::move(over));
    for (const smdp_call& call : calls) {
      group.submit(call, all->part());
    }
  }

 private:
  int root_ = 0;
};

// Along the first dimension, in which the ranks' tensors may differ: the ranks first exchange the number and
// the size of their rows, then each sends as many rows as the longest tensor has.
class AllGather : public Sequenced {
 public:
  using Sequenced::Sequenced;

 protected:
  [[nodiscard]] std::string refusal(OpKernelContext& context) const override {
    return context.input(0).dims() > 0 ? ""
                                       : "a tensor without dimensions has no rows to gather: give it one";
  }

  void start(OpKernelContext* context, Ranks ranks, Group& group, Ended over) override {
    const Tensor& input = context->input(0);
    Tensor* rows = nullptr;
    SMDP_OK_OR_OVER(context->allocate_output(1, TensorShape({ranks.all}), &rows), over);
    const auto all = std::make_shared<std::vector<Rows>>(static_cast<std::size_t>(ranks.all) + 1);
    Rows& own = all->back();
    own = {input.dim_size(0), row_bytes_of(input)};
    smdp_call call{};
    call.collective = SMDP_ALL_GATHER;
    call.dtype = SMDP_INT64;
    call.count = sizeof(Rows) / sizeof(int64_t);
    call.input = &own;
    call.output = all->data();
    group.submit(call, [context, ranks, rows, all, &group, over = std::move(over)](const smdp_error& error) {
      if (error.code != SMDP_OK) {
        over(error);
        return;
      }
      for (int rank = 0; rank < ranks.all; ++rank) {
        const Rows& theirs = (*all)[static_cast<std::size_t>(rank)];
        if (theirs.bytes != all->back().bytes) {
          over(failure(SMDP_MISMATCH, "allgather of rows of " + std::to_string(all->back().bytes) +
                                          " bytes on rank " + std::to_string(ranks.own) + ", and of " +
                                          std::to_string(theirs.bytes) + " on rank " + std::to_string(rank) +
                                          ": only the first dimension may differ"));
          return;
        }
        rows->flat<int64_t>()(rank) = theirs.count;
      }
      gather(context, *rows, group, over);
    });
  }

 private:
  struct Rows {
    int64_t count = 0;
    int64_t bytes = 0;  // of each
  };

  static int64_t row_bytes_of(const Tensor& tensor) {
    TensorShape row = tensor.shape();
    row.set_dim(0, 1);
    return row.num_elements() * tf::DataTypeSize(tensor.dtype());
  }

  static void gather(OpKernelContext* context, const Tensor& rows, Group& group, const Ended& over) {
    const Tensor& input = context->input(0);
    const auto counts = rows.flat<int64_t>();
    const int64_t ranks = counts.size();
    int64_t all = 0;
    int64_t most = 0;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      all += counts(rank);
      most = std::max<int64_t>(most, counts(rank));
    }
    TensorShape shape = input.shape();
    shape.set_dim(0, 1);
    const int64_t row_elements = shape.num_elements();
    const auto row_bytes = static_cast<std::size_t>(row_bytes_of(input));
    shape.set_dim(0, all);
    Tensor* output = nullptr;
    SMDP_OK_OR_OVER(context->allocate_output(0, shape, &output), over);
    if (all == 0 || row_bytes == 0) {
      over({});
      return;
    }
    smdp_call call = moved(SMDP_ALL_GATHER, input, most * row_elements);
    if (all == most * ranks) {
      call.input = memory_of(input);
      call.output = memory_to_fill(output);
      group.submit(call, over);
      return;
    }
    Tensor padded;
    Tensor gathered;
    tf::AllocatorAttributes on_host;
    on_host.set_on_host(true);
    const auto part_bytes = static_cast<std::size_t>(most) * row_bytes;
    const auto part = static_cast<int64_t>(part_bytes);
    SMDP_OK_OR_OVER(context->allocate_temp(tf::DT_UINT8, TensorShape({part}), &padded, on_host), over);
    SMDP_OK_OR_OVER(context->allocate_temp(tf::DT_UINT8, TensorShape({part * ranks}), &gathered, on_host),
                    over);
    const std::size_t own_bytes = static_cast<std::size_t>(input.dim_size(0)) * row_bytes;
    std::memset(memory_to_fill(&padded), 0, part_bytes);
    std::memcpy(memory_to_fill(&padded), memory_of(input), own_bytes);
    call.input = memory_of(padded);
    call.output = memory_to_fill(&gathered);
    group.submit(call, [=](const smdp_error& error) {
      auto* to = static_cast<char*>(memory_to_fill(output));
      const auto* from = static_cast<const char*>(memory_of(gathered));
      const auto counted = rows.flat<int64_t>();
      for (int64_t rank = 0; error.code == SMDP_OK && rank < ranks; ++rank) {
        const std::size_t bytes = static_cast<std::size_t>(counted(rank)) * row_bytes;
        std::memcpy(to, from + static_cast<std::size_t>(rank) * part_bytes, bytes);
        to += bytes;
      }
      (void)padded;  // kept until here
      over(error);
    });
  }
};

class Barrier : public Sequenced {
 public:
  using Sequenced::Sequenced;

 protected:
  void start(OpKernelContext* /*context*/, Ranks /*ranks*/, Group& group, Ended over) override {
    smdp_call call{};
    call.collective = SMDP_BARRIER;
    group.submit(call, std::move(over));
  }
};

#define SMDP_MOVED_TYPES                                                                                  \
  "{bfloat16, half, float, double, int8, int16, int32, int64, uint8, uint16, uint32, uint64, complex64, " \
  "complex128, bool}"

auto same_shapes(InferenceContext* inference) {
  for (int i = 0; i < inference->num_inputs(); ++i) {
    inference->set_output(i, inference->input(i));
  }
  return tf::OkStatus();
}

REGISTER_OP("SmdpAllReduce")
    .Input("values: T")
    .Output("reduced: T")
    .Attr("T: list({bfloat16, half, float, double, int8, int16, int32, int64, uint8, bool}) >= 1")
    .Attr("lane: string")
    .Attr("index: int >= 0 = 0")
    .Attr("count: int >= 1 = 1")
    .Attr("trace: int >= 0 = 0")
    .Attr("reduction: {'average', 'sum', 'min', 'max'} = 'average'")
    .Attr("buffer_bytes: int >= 1 = 26214400")
    .Attr("among: string = ''")
    .Attr("described: string = ''")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn(same_shapes);

REGISTER_OP("SmdpBroadcast")
    .Input("values: T")
    .Output("received: T")
    .Attr("T: list(" SMDP_MOVED_TYPES ") >= 1")
    .Attr("sequence: string")
    .Attr("root: int >= 0")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn(same_shapes);

REGISTER_OP("SmdpAllGather")
    .Input("value: T")
    .Output("gathered: T")
    .Output("rows: int64")
    .Attr("T: " SMDP_MOVED_TYPES)
    .Attr("sequence: string")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn([](InferenceContext* inference) {
      tf::shape_inference::ShapeHandle shape;
      TF_RETURN_IF_ERROR(inference->WithRankAtLeast(inference->input(0), 1, &shape));
      TF_RETURN_IF_ERROR(inference->ReplaceDim(shape, 0, inference->UnknownDim(), &shape));
      inference->set_output(0, shape);
      inference->set_output(1, inference->Vector(InferenceContext::kUnknownDim));
      return tf::OkStatus();
    });

REGISTER_OP("SmdpBarrier")
    .Attr("sequence: string")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn(tf::shape_inference::NoOutputs);

REGISTER_KERNEL_BUILDER(Name("SmdpAllReduce").Device(tf::DEVICE_CPU), AllReduce);
REGISTER_KERNEL_BUILDER(Name("SmdpBroadcast").Device(tf::DEVICE_CPU), Broadcast);
REGISTER_KERNEL_BUILDER(Name("SmdpAllGather").Device(tf::DEVICE_CPU), AllGather);
REGISTER_KERNEL_BUILDER(Name("SmdpBarrier").Device(tf::DEVICE_CPU), Barrier);
REGISTER_KERNEL_BUILDER(
    Name("SmdpAllReduce").Device(tf::DEVICE_GPU).HostMemory("values").HostMemory("reduced"), AllReduce);
REGISTER_KERNEL_BUILDER(
    Name("SmdpBroadcast").Device(tf::DEVICE_GPU).HostMemory("values").HostMemory("received"), Broadcast);
REGISTER_KERNEL_BUILDER(Name("SmdpAllGather")
                            .Device(tf::DEVICE_GPU)
                            .HostMemory("value")
                            .HostMemory("gathered")
                            .HostMemory("rows"),
                        AllGather);
REGISTER_KERNEL_BUILDER(Name("SmdpBarrier").Device(tf::DEVICE_GPU), Barrier);

}  // namespace
}  // namespace smdp_tensorflow

// For Python, which knows them through ctypes. A text is written to `error`, at most `capacity` bytes.
extern "C" {

__attribute__((visibility("default"))) int smdp_tensorflow_open(int rank, int world_size, const char* master,
                                                                char* error, size_t capacity) {
  const smdp_error found = smdp_tensorflow::Session::open(rank, world_size, master);
  std::snprintf(error, capacity, "%s", found.message);
  return found.code;
}

__attribute__((visibility("default"))) void smdp_tensorflow_close() { smdp_tensorflow::Session::close(); }

__attribute__((visibility("default"))) void smdp_tensorflow_abandon() { smdp_tensorflow::Session::abandon(); }

// No thread of ours runs anything of TensorFlow's from here on.
__attribute__((visibility("default"))) void smdp_tensorflow_retire() { smdp_adapters::Completer::retire(); }
}
