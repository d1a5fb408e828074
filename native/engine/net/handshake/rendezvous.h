// How ranks find each other: connections of all ranks to rank 0, open until the engine is open.
//
// Every round is one exchange(): each rank contributes a blob, and all ranks get all blobs or the same error,
// so that an error of one rank is reported on all. The address of rank 0 comes from MASTER_ADDR and
// SMDP_RENDEZVOUS_PORT, or from a key-value store such as torch's Store.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/options.h"
#include "base/status.h"
#include "net/handshake/hello.h"

namespace smdp {

class Handshaker;

// Rank 0's entry in a store: "<port>/<address>,<address>...", and behind a further / its HMAC in hexadecimal,
// keyed with the job's token, because other processes may write to the store.
std::string sign_entry(std::span<const std::byte> token, const std::string& addresses);

class KeyValueStore {
 public:
  virtual ~KeyValueStore() = default;
  virtual Status set(const std::string& key, const std::string& value) = 0;
  // Waits until the key is there.
  virtual Result<std::string> get(const std::string& key, TimePoint deadline) = 0;
};

class Rendezvous {
 public:
  // Connects this rank to rank 0 (or, on rank 0, waits for all the others). `master` is used when `store` is
  // null. `warn` is called for refusals and entries without proof.
  static Result<std::unique_ptr<Rendezvous>> meet(const Hello& self, std::vector<std::byte> token,
                                                  const Options& options, const std::string& master,
                                                  KeyValueStore* store, TimePoint deadline,
                                                  const std::function<void(const std::string&)>& warn);

  // The ranks' blobs in order of rank. If a rank contributes an error instead of a blob, or leaves, all ranks
  // get that error.
  Result<std::vector<Bytes>> exchange(const Result<Bytes>& mine, TimePoint deadline);
  // As exchange(); rank 0 then computes one answer from the blobs, which all ranks get.
  Result<Bytes> decide(const Result<Bytes>& mine,
                       const std::function<Result<Bytes>(const std::vector<Bytes>&)>& judge,
                       TimePoint deadline);

  // Between two exchanges. Not ok: a rank has left, or rank 0 has already sent an error. The next exchange
  // then fails on all ranks.
  [[nodiscard]] Status departure();
  // Between two exchanges: `handshaker` ends when rank 0 has already sent an error or a rank has left.
  void watch_during(Handshaker& handshaker);

  // The address from which this rank reached rank 0; on rank 0, the addresses at which it was reached.
  [[nodiscard]] const std::vector<std::string>& local_addresses() const { return local_addresses_; }

 private:
  [[nodiscard]] std::string describe_peer(int rank);

  Rendezvous(int rank, int world_size) : rank_(rank), world_size_(world_size) {}

  int rank_;
  int world_size_;
  std::map<int, UniqueFd> links_;  // rank 0: one per other rank; the others: one, to rank 0
  std::vector<std::string> local_addresses_;
};

}  // namespace smdp
