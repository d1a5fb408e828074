// LocalReducer over shared memory.
//
// A rank copies its values of a piece into its arena and sends the offset to the piece's agent (kContribute).
// The agent reads the values of all ranks in place, in the order of local ranks, writes the sum into its own
// arena and acknowledges the values (kConsumed). Final bytes go the other way: the agent sends the offset of
// its memory (kOffer), and each rank copies the bytes out and acknowledges them (kTaken). A rank that is
// alone on its host copies nothing: its input is the sum, its output the result.
//
// An input that lies in the rank's arena (Engine::registered_memory) is not copied: its place is sent. The
// values are then in use until the agent has acknowledged them. In the same way, final bytes that a fabric
// has received in the arena are offered where they are (adopt()).
#pragma once

#include <functional>
#include <list>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "shm/local_reducer.h"
#include "shm/region_table.h"

namespace smdp {

class ShmJob final : public LocalJob {
 public:
  // Sends a frame to the rank of this host with that local index. The callee fills in group and operation.
  using Send = std::function<void(int local_rank, FrameHeader header)>;
  // Memory of that local rank's arena; empty when the range is outside.
  using Peek =
      std::function<std::span<const std::byte>(int local_rank, std::uint64_t offset, std::uint64_t bytes)>;

  ShmJob(LocalSpec spec, std::shared_ptr<RegionTable> regions, Send send, Peek peek, Events& events);
  ~ShmJob() override;
  ShmJob(const ShmJob&) = delete;
  ShmJob& operator=(const ShmJob&) = delete;

  void start() override;
  bool may_sum(std::uint32_t piece) override { return locals_ == 1 || result(piece).data() != nullptr; }
  void sum(std::uint32_t piece) override;
  std::span<std::byte> result(std::uint32_t piece) override;
  bool adopt(std::uint32_t piece, std::span<const std::byte> bytes,
             const std::shared_ptr<const void>& owner) override;
  void deliver(std::uint32_t piece) override;
  void discard(std::uint32_t piece) override;
  std::shared_ptr<const void> keep(std::uint32_t piece) override;
  bool on_frame(int local_sender, const FrameHeader& header) override;
  void pump() override;
  [[nodiscard]] std::optional<TimePoint> starved_since() const override { return starved_since_; }
  [[nodiscard]] std::vector<int> missing(std::uint32_t piece) const override;
  [[nodiscard]] std::vector<int> takers(std::uint32_t piece) const override;

 private:
  struct Values {
    std::vector<const std::byte*> of;  // by local rank
    std::vector<std::uint64_t> offsets;
    std::size_t count = 0;
  };
  // A copy of this rank's values, for the piece's agent.
  struct Contribution {
    std::uint32_t piece = 0;
    std::uint64_t offset = 0;
    bool copied = false;
  };

  std::optional<std::uint64_t> take(std::uint64_t bytes);
  [[nodiscard]] const Piece& piece_at(std::uint32_t piece) const { return spec_.plan->pieces[piece]; }
  [[nodiscard]] bool is_agent(std::uint32_t piece) const;
  [[nodiscard]] bool gets(int local_rank, std::uint32_t piece) const;
  [[nodiscard]] bool stays_here(std::uint32_t piece) const;
  [[nodiscard]] std::span<const std::byte> input_of(std::uint32_t piece) const;
  [[nodiscard]] std::span<std::byte> output_of(std::uint32_t piece) const;
  template <class Done>
  void copy_out(std::span<const std::byte> result, std::span<std::byte> output, Done done) const;
  void contribute_copied();
  void give_back_values(std::uint32_t piece);
  void delivered(std::uint32_t piece, bool is_taken);
  Values& values_of(std::uint32_t piece);
  bool on_contribution(int sender, const FrameHeader& header);
  bool on_offer(int sender, const FrameHeader& header);
  bool on_taken(int sender, std::uint32_t piece);

  LocalSpec spec_;
  std::shared_ptr<RegionTable> regions_;
  Send send_;
  Peek peek_;
  Events& events_;
  int local_ = 0;
  std::size_t locals_ = 1;
  const std::vector<int>* host_ranks_ = nullptr;
  std::optional<std::uint64_t> input_offset_;  // of an input in this rank's arena
  std::unordered_set<std::uint32_t> lent_;     // pieces of it that the agents read
  std::size_t next_ = 0;                       // into the plan's order
  std::uint64_t max_offered_ = 0;  // bytes: the most that may be offered to the other ranks at a time
  std::uint64_t offered_ = 0;      // bytes offered
  std::optional<TimePoint> starved_since_;
  std::list<Contribution> contributions_;  // not sent yet, in the plan's order
  std::unordered_map<std::uint32_t, Values> values_;
  std::unordered_map<std::uint32_t, std::uint64_t> results_;  // piece to offset of our region
  std::unordered_map<std::uint32_t, std::shared_ptr<std::byte[]>>
      scratch_;  // NOLINT(modernize-avoid-c-arrays)
  std::unordered_map<std::uint32_t, std::vector<int>> takers_;
};

}  // namespace smdp
