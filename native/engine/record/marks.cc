#include "record/marks.h"

#include <utility>

namespace smdp {

MarkLog::Batch MarkLog::take() { return std::exchange(batch_, std::exchange(spare_, {})); }

void MarkLog::give_back(Batch batch) {
  batch.marks.clear();
  batch.begun.clear();
  spare_ = std::move(batch);
}

}  // namespace smdp
