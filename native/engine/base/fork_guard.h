// Descriptors that a forked child must not keep.
//
// A dead rank is noticed because the kernel closes its sockets. A data-loader worker forked from the rank
// holds copies of them, and the peers would wait for as long as the worker lives. So a handler of
// pthread_atfork closes every engine descriptor in the child. This is the engine's only global state, for the
// kernel's table is global too.
#pragma once

namespace smdp::fork_guard {

void add(int fd);
void remove_and_close(int fd);

}  // namespace smdp::fork_guard
