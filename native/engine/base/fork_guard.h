// Descriptors that a forked child must not keep.
//
// The peers notice a dead rank because the kernel closes its sockets. A data-loader worker forked from the
// rank holds copies of them, so the peers would wait for as long as the worker lives. A handler of
// pthread_atfork therefore closes every descriptor of the engine in the child. This is the engine's only
// global state, because the kernel's table is global too.
#pragma once

namespace smdp::fork_guard {

void add(int fd);
void remove_and_close(int fd);

}  // namespace smdp::fork_guard
