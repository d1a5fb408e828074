import argparse, json, sys, time
from pathlib import Path
import suite, workers
p = argparse.ArgumentParser(); p.add_argument("backend"); p.add_argument("names", nargs="*"); p.add_argument("--lanes", type=int, default=2)
p.add_argument("--deadline", type=float, default=60); p.add_argument("-o")
a = p.parse_args()
if a.backend == "smddp": suite.register_ours()
skipped = suite.skipped_before_start()
names = a.names or [n for n in suite.names() if n not in skipped]
t = time.monotonic()
v = workers.run(names, a.backend, lanes=a.lanes, deadline_s=a.deadline)
import collections
print(collections.Counter(x.kind for x in v.values()), time.monotonic() - t)
if a.o: Path(a.o).write_text(json.dumps({n: vars(x) for n, x in v.items()}, indent=1))
else:
    for n, x in v.items(): print(n, x.kind, round(x.seconds, 2), x.reason)
