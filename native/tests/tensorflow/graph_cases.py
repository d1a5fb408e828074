"""Cases of test_tensorflow_operations.py: functions, loops, sessions and lists of gradients."""

CASES = {
    "200 gradients in a different order on each rank": """
count = 200
def in_order(order):
    def step(scale):
        before, given = [], [None] * count
        for index in order:
            with tf.control_dependencies(before):
                given[index] = tf.identity(tf.fill([1 + index * 13 % 300], scale * (index + 1)))
            before = [given[index]]
        return [sdp.allreduce(one, i, count, op=sdp.ReduceOp.SUM) for i, one in enumerate(given)]
    return tf.function(step)
generator = np.random.default_rng(rank)
functions = [in_order(generator.permutation(count)) for _ in range(5)]
digest = 0.0
for step in range(100):
    found = functions[generator.integers(len(functions))](tf.constant((rank + 1) / 3.0 + step, tf.float32))
    scale = sum((one + 1) / 3.0 + step for one in range(size))
    for index, one in enumerate(found):
        values = one.numpy()
        assert (values == values[0]).all() and abs(values[0] / (scale * (index + 1)) - 1) < 1e-6, (step, index)
        digest = (digest * 31 + float(values[0])) % 1e9
assert len(set(sdp.allgather(tf.constant([digest], tf.float64)).numpy().tolist())) == 1
""",
    "calls of one function match between ranks with different first shapes": """
variable = tf.Variable([1.0])
@tf.function
def gradients(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(variable * tf.reduce_sum(x))
    return sdp.DistributedGradientTape(tape).gradient(loss, [variable])[0]
@tf.function
def both(a, b):
    return gradients(a), gradients(b)
@tf.function
def second_of_two(x):
    gradients(x[:1])
    return gradients(x)
lengths = [3, 4] if rank % 2 == 0 else [4, 3]
assert [float(one[0]) for one in both(tf.ones(lengths[:1]), tf.ones(lengths[1:]))] == [3.5, 3.5]
assert [float(one[0]) for one in both(tf.ones([3]), tf.ones([4]))] == [3.0, 4.0]
assert float(second_of_two(tf.ones([10 + rank]))[0]) == 11.5
assert float(gradients(tf.ones([10]))[0]) == 10.0
""",
    "calls of one function and iterations of a loop keep their order": """
def after(work, x):  # as late as so many products take
    steps = tf.while_loop(lambda i, _: i < work, lambda i, a: (i + 1, tf.matmul(a, a)), [0, tf.ones([150, 150]) / 1e3])
    late = tf.reduce_sum(steps[1]) * 0
    return x + tf.where(tf.math.is_finite(late), late, 0.0)
@tf.function
def once(work, x):
    return sdp.oob_allreduce(after(work, x))
@tf.function
def twice(work):
    return once(work[0], 1.0), once(work[1], 100.0)
@tf.function
def loop(work):
    def turn(i, out):
        return i + 1, out.write(i, sdp.oob_allreduce(after(work[i], tf.cast(i, tf.float32))))
    return tf.while_loop(lambda i, _: i < 4, turn, [0, tf.TensorArray(tf.float32, 4)])[1].stack()
for _ in range(5):
    work = [0, 300, 0, 0] if rank % 2 == 0 else [300, 0, 0, 0]
    assert [one.numpy() for one in twice(tf.constant(work))] == [1.0, 100.0]
    assert loop(tf.constant(work)).numpy().tolist() == [0.0, 1.0, 2.0, 3.0]
""",
    "an unused average is exchanged": """
variables = [tf.Variable(tf.ones([2])) for _ in range(3)]
@tf.function
def two_of_three(x):
    with tf.GradientTape() as tape:
        loss = tf.add_n([tf.reduce_sum(one * x) for one in variables])
    return sdp.DistributedGradientTape(tape).gradient(loss, variables)[1:]
for step in range(3):
    assert [one.numpy().tolist() for one in two_of_three(tf.constant(float(rank + step)))] == [[1.5 + step] * 2] * 2
""",
    "gradients of some of the averages": """
variables = [tf.Variable([float(one)]) for one in (2, 3, 4)]
@tf.function
def penalized(x):
    with tf.GradientTape() as outer:
        with tf.GradientTape() as inner:
            loss = tf.add_n([tf.reduce_sum(one ** 2 * x) for one in variables])
        own = sdp.DistributedGradientTape(inner).gradient(loss, variables)
        penalty = tf.reduce_sum(own[1] ** 2) + tf.reduce_sum(own[2] ** 2)
    return outer.gradient(penalty, variables[1])
for step in range(3):  # d (2 w)^2 / d w
    assert penalized(tf.constant(1.0)).numpy().tolist() == [24.0]
""",
    "data that end in the middle of a function": """
from smdp_engine.tensorflow.gradients import exchange
how = exchange(sdp.Compression.none, True, sdp.ReduceOp.AVERAGE)
by_tape = lambda tape, loss: sdp.DistributedGradientTape(tape).gradient(loss, variables)
as_optimizers_do = lambda tape, loss: how.average(tape.gradient(loss, variables))
by_hand = lambda tape, loss: [sdp.allreduce(one, i, 2) for i, one in enumerate(tape.gradient(loss, variables))]
variables = [tf.Variable([1.0]), tf.Variable([2.0])]
for averaged in (by_tape, as_optimizers_do, by_hand):
    @tf.function
    def step(iterator):
        x = tf.cast(next(iterator), tf.float32)
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(variables[0] * x) + tf.reduce_sum(variables[1] ** 2)  # one gradient needs no data
        return averaged(tape, loss)
    for epoch in range(5):
        iterator = iter(tf.data.Dataset.range(3))
        seen = []
        try:
            while True:
                seen.append([float(one[0]) for one in step(iterator)])
        except tf.errors.OutOfRangeError:
            assert seen == [[0.0, 4.0], [1.0, 4.0], [2.0, 4.0]]
""",
    "a function calls another one with its name": """
def slow(value, when):
    def late(value):
        time.sleep(0.1)
        return value
    return tf.numpy_function(late, [value], tf.float32, stateful=False) if when else value
class Part:
    @tf.function
    def step(self, x):
        return sdp.oob_allreduce(slow(x, rank % 2))
class Whole:
    part = Part()
    @tf.function
    def step(self, x):
        own = sdp.oob_allreduce(slow(x, rank % 2 == 0))
        return own, self.part.step(100 * x), sdp.oob_allreduce(10 * x)
whole = Whole()
for turn in range(5):
    x = 1.0 + turn
    assert [float(one) for one in whole.step(tf.constant(x))] == [x, 100 * x, 10 * x]
""",
    "gradients of functions do not depend on other traces": """
for extra in range(rank * 3):
    tf.function(lambda x: x + 1)(tf.ones([2]))
@tf.function
def exchanging(x):
    return sdp.allreduce(x * x, 0, 1) + sdp.broadcast(x, 1) + tf.reduce_sum(sdp.allgather(x))
@tf.function
def nested(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = exchanging(x)
    return value, tape.gradient(value, x)
x = tf.constant([3.0, 4.0])
for turn in range(3):
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = exchanging(x)
    for found, gradient in ((value, tape.gradient(value, x)), nested(x)):
        assert found.numpy().tolist() == [9.0 + 3 + 28, 16.0 + 4 + 28]
        # Of the averages 2 x; of the root's values as many as there are ranks; of the rows 2 elements of each of them.
        wanted = [2 * 3.0 + 8, 2 * 4.0 + 8] if rank != 1 else [2 * 3.0 + 4 + 8, 2 * 4.0 + 4 + 8]
        assert gradient.numpy().tolist() == wanted, (gradient, wanted)
""",
    "loops and functions in a session are refused, operations must be run": """
with tf.Graph().as_default():
    refuses(NotImplementedError, "does not order the iterations of a loop", lambda: tf.while_loop(
        lambda i: i < 3, lambda i: i + sdp.allreduce(i, 0, 1), [tf.constant(1)]))
    refuses(NotImplementedError, "or the calls of a tf.function", lambda: tf.function(sdp.oob_allreduce)(tf.ones([2])))
with tf.Graph().as_default():
    weight = tf.compat.v1.get_variable("w", initializer=float(rank))
    both = [sdp.broadcast_variables([weight], 3), sdp.barrier()]
    with tf.compat.v1.Session() as session:
        session.run(weight.initializer)
        session.run(both)
        assert session.run(weight) == 3.0
assert sdp.barrier() is None
assert tf.function(sdp.barrier)() is None
""",
    "lists that differ between ranks": """
def gives(variables):
    def step():
        with tf.GradientTape() as tape:
            loss = tf.add_n([tf.reduce_sum(one) for one in variables])
        return sdp.DistributedGradientTape(tape).gradient(loss, variables)
    return step
shapes = gives([tf.Variable(tf.ones([7])), tf.Variable(tf.ones([8 + (rank == 2)]))])
numbers = gives([tf.Variable(tf.ones([10])) for _ in range(1 + (rank == 2))])  # lists that no rank has used before
for step in (shapes, tf.function(shapes)):
    refuses(tf.errors.InvalidArgumentError, "number 1 of 2 is float32", step)
for step in (numbers, tf.function(numbers)):
    refuses(tf.errors.InvalidArgumentError, "none may be None on some ranks only", step)
""",
    "a function that trains is not saved": """
class Trained(tf.Module):
    def __init__(self):
        self.weight = tf.Variable(2.0)
    @tf.function
    def train(self):
        return sdp.oob_allreduce(self.weight)
    @tf.function(input_signature=[tf.TensorSpec([])])
    def apply(self, x):
        return self.weight * x
import tempfile
trained, served = Trained(), tf.Module()
trained.train()
served.apply = trained.apply
with tempfile.TemporaryDirectory() as folder:
    refuses(ValueError, "do not save functions that train", lambda: tf.saved_model.save(trained, folder))
    served.weight = trained.weight
    tf.saved_model.save(served, folder)
    loaded = tf.saved_model.load(folder)
    assert loaded.apply(tf.constant(3.0)).numpy() == 6.0
""",
    "rows that cannot be gathered": """
refuses(tf.errors.InvalidArgumentError, "a tensor without dimensions has no rows",
        lambda: sdp.allgather(tf.constant(1.0)))
refuses(tf.errors.InvalidArgumentError, "only the first dimension may differ",
        lambda: sdp.allgather(tf.ones([2, 3 * rank])))
assert sdp.allgather(tf.ones([rank])).shape == (6,)
""",
    "values that are no variables, and different variables, are refused": """
listed = tf.Variable(float(rank))
sdp.broadcast_variables(lambda: [listed], 2)
assert listed.numpy() == 2.0
refuses(ValueError, "found ndarray in place 1", lambda: sdp.broadcast_variables([tf.Variable(1.0), np.ones(2)], 0))
refuses(RuntimeError, "as many with other types or shapes",
        lambda: sdp.broadcast_variables([tf.Variable(tf.ones([1 + rank]))], 0))
""",
    "functions of one name with lists of other sizes": """
def trained(width):
    @tf.function
    def train_step(x):
        return [sdp.allreduce(tf.fill([width + i], tf.reduce_sum(x) + i), i, 3) for i in range(3)]
    return train_step
@tf.function
def given(gradients):
    return [sdp.allreduce(one, i, 2) for i, one in enumerate(gradients)]
steps = []
for width in (8, 16):
    steps.append((width, trained(width)))
    for turn in range(3):
        for width, step in steps:
            # The first steps of a rank have other traces than those of the others.
            for i, one in enumerate(step(tf.fill([1 + (rank + turn) % 4], float(turn)))):
                total = sum((1 + (other + turn) % 4) * turn for other in range(size))
                assert one.numpy().tolist() == [total / size + i] * (width + i), (width, turn, i, one)
            for one in given([tf.fill([width], float(rank)), tf.fill([3], float(rank))]):
                assert set(one.numpy().tolist()) == {1.5}
""",
    "a list that changes its sizes": """
@tf.function(reduce_retracing=True, input_signature=[tf.TensorSpec([None])])
def reduced(x):
    return [sdp.allreduce(x, 0, 2), sdp.allreduce(tf.zeros([3]), 1, 2)]
reduced(tf.zeros([4])), reduced(tf.zeros([4]))
refuses(tf.errors.InvalidArgumentError, "gradient 0 of 2 had 4 elements", lambda: reduced(tf.zeros([5])))
assert sdp.allreduce(mine(2), 0, 1).shape == (2,)
""",
}
