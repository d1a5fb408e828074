// Where ranks find each other: a star around rank 0, kept open while the engine opens.
//
// Every round is one exchange(): each rank gives a blob, and all get everybody's blobs or everybody the same
// error, so that a refusal seen by one rank is read on all. Who listens where comes from MASTER_ADDR and
// SMDP_RENDEZVOUS_PORT, or through a key-value store, the seam by which torch's Store serves (only rank 0's
// address passes through it).
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
#include "net/hello.h"

namespace smdp {

class Greeter;

// Rank 0's entry in a store: "<port>/<address>,<address>...", and behind a further / its HMAC in hexadecimal,
// keyed with the job's token, for others may write there too.
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
  // null. `warn` is told of what is doubted: refusals and entries that are not proved.
  static Result<std::unique_ptr<Rendezvous>> meet(const Hello& self, std::vector<std::byte> token,
                                                  const Options& options, const std::string& master,
                                                  KeyValueStore* store, TimePoint deadline,
                                                  const std::function<void(const std::string&)>& warn);

  // The ranks' blobs in order of rank. If a rank brings an error instead of a blob, or leaves, that error on
  // all.
  Result<std::vector<Bytes>> exchange(const Result<Bytes>& mine, TimePoint deadline);
  // As exchange(); rank 0 then turns the blobs into one answer, which all get.
  Result<Bytes> decide(const Result<Bytes>& mine,
                       const std::function<Result<Bytes>(const std::vector<Bytes>&)>& judge,
                       TimePoint deadline);

  // While `greeter` runs, between two exchanges, it ends when rank 0 has judged already or a rank has left.
  void attend(Greeter& greeter);

  // The address by which this rank reached rank 0; on rank 0, those by which it was reached.
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
