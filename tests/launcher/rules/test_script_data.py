"""The rules about devices, data, checkpoints and requirements of the script (SMDP445 to SMDP450)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.launcher.rules.scripts import (
    KERAS,
    LOADER,
    LOOP,
    SAMPLER,
    SAVE,
    SDP,
    SET_EPOCH,
    SHUFFLED,
    TENSORFLOW,
    Changes,
    changed,
    codes,
    only,
    reported,
    sound,
)

# 445: GPUs


@pytest.mark.parametrize(
    "device",
    ['torch.device("cpu")', '"cpu"'],
)
def test_script_without_gpu_is_reported(tmp_path: Path, device: str) -> None:
    script = sound(('torch.device("cuda", int(os.environ["LOCAL_RANK"]))', device))
    assert codes(reported(tmp_path, script)) == ["SMDP445"]


def test_rank_counts_as_device(tmp_path: Path) -> None:
    number = ('torch.device("cuda", int(os.environ["LOCAL_RANK"]))', 'int(os.environ["LOCAL_RANK"])')
    assert reported(tmp_path, sound(number)) == []


def test_cpu_argument_does_not_count_as_gpu(tmp_path: Path) -> None:
    device = ('torch.device("cuda", int(os.environ["LOCAL_RANK"]))', 'torch.device("cpu")')
    evaluate = "def evaluate(model, batch, device):\n    return model(batch.to(device))\n\n\n"
    script = sound(device, ("rank, world_size", f"{evaluate}rank, world_size"))
    assert codes(reported(tmp_path, script)) == ["SMDP445"]
    chosen = ('torch.device("cpu")', 'torch.device("cuda" if torch.cuda.is_available() else "cpu")')
    assert reported(tmp_path, changed(script, (chosen,))) == []


def test_gpu_query_and_autocast_do_not_count_as_moves(tmp_path: Path) -> None:
    asks = 'print(torch.cuda.is_available())\ntorch.cuda.manual_seed(1)\nscaler = torch.amp.GradScaler("cuda")\n'
    device = ('torch.device("cuda", int(os.environ["LOCAL_RANK"]))', '"cpu"')
    script = sound(
        device, ("rank, world_size", f"{asks}rank, world_size"), ("batch.to(device)", "batch.to(torch.float32)")
    )
    assert codes(reported(tmp_path, script)) == ["SMDP445"]


@pytest.mark.parametrize(
    "line",
    [
        'torch.set_default_device("cuda")\n',
        "torch.cuda.set_device(0)\n",
        "model.cuda()\n",
        "model = model.to(args.device)\n",
        'weights = torch.zeros(3, device=f"cuda:{rank}")\n',
        'device = "cuda" if torch.cuda.is_available() else "cpu"\n',
        "import pytorch_lightning\n",
    ],
)
def test_script_that_may_use_gpu_is_accepted(tmp_path: Path, line: str) -> None:
    script = sound(
        ('torch.device("cuda", int(os.environ["LOCAL_RANK"]))', '"cpu"'), ("optimizer = ", f"{line}optimizer = ")
    )
    assert reported(tmp_path, script) == []


def test_tensorflow_script_needs_no_device(tmp_path: Path) -> None:
    script = KERAS.format(before=SDP, optimizer="sdp.DistributedOptimizer(tf.keras.optimizers.SGD(0.1))", after="")
    assert reported(tmp_path, script, TENSORFLOW) == []


# 446: data


@pytest.mark.parametrize(
    "loader",
    [
        "loader = DataLoader(train_data, batch_size=8, shuffle=True)\n",
        "loader = DataLoader(train_data, 8, True)\n",
        "train_loader = loader = DataLoader(train_data, batch_size=8, sampler=None)\n",
        "loader = DataLoader(dataset=train_data, shuffle=True)\n",
    ],
)
def test_loader_without_sampler_is_reported(tmp_path: Path, loader: str) -> None:
    one = only(reported(tmp_path, sound((SAMPLER + LOADER, loader), (SET_EPOCH, ""))))
    assert (one.code, one.span and one.span.line) == ("SMDP446", 19)


def test_unused_sampler_is_reported(tmp_path: Path) -> None:
    unused = (LOADER, "loader = DataLoader(train_data, batch_size=8, shuffle=True)\n")
    assert codes(reported(tmp_path, sound(unused))) == ["SMDP446"]


@pytest.mark.parametrize(
    "loader",
    [
        "loader = DataLoader(train_data, batch_sampler=MyBatches(train_data), num_workers=2)\n",
        "loader = DataLoader(train_data, shuffle=True, **settings)\n",
        "train_data = torch.utils.data.Subset(train_data, range(rank, 100, world_size))\n" + SHUFFLED,
        "train_data = train_data[rank::world_size]\nloader = DataLoader(train_data, shuffle=True)\n",
        "train_data = train_data.shard(world_size, rank)\nloader = DataLoader(train_data, shuffle=True)\n",
        "from datasets.distributed import split_dataset_by_node as split\ntrain_data = split(train_data, 0, 8)\n"
        + SHUFFLED,
        "class Stream(torch.utils.data.IterableDataset):\n    pass\n\n\nloader = DataLoader(Stream(train_data))\n",
        "import webdataset\nloader = DataLoader(train_data, shuffle=True)\n",
        "torch.manual_seed(17 + rank)\nloader = DataLoader(train_data, shuffle=True)\n",
        "loader = load(train_data)\nval_loader = DataLoader(val_data, shuffle=True)\n",
        "loader = load(train_data)\ntest_loader = DataLoader(train_data, batch_size=8)\n",
        "loader = DataLoader(MyData(train_data, rank), shuffle=True)\n",
        "train_data = [one for at, one in enumerate(train_data) if at % world_size == rank]\n" + SHUFFLED,
    ],
)
def test_other_ways_to_divide_data_are_accepted(tmp_path: Path, loader: str) -> None:
    assert reported(tmp_path, sound((SAMPLER + LOADER, loader), (SET_EPOCH, ""))) == []


# 447: saves


@pytest.mark.parametrize(
    "save",
    [
        'torch.save(model.state_dict(), "/opt/ml/model/model.pt")\n',
        'torch.save(model.state_dict(), os.path.join(os.environ["SM_MODEL_DIR"], "model.pt"))\n',
        'def save(path):\n    torch.save(model.state_dict(), path)\n\n\nsave("/opt/ml/model/model.pt")\n',
        'class Job:\n    def save(self):\n        torch.save(model, "model.pt")\n\n\nJob().save()\n',
        'with open("/opt/ml/model/model.pt", "wb") as file:\n    torch.save(model.state_dict(), file)\n',
        'if args.epochs > 3:\n    model.module.save_pretrained("/opt/ml/model")\n',
    ],
)
def test_save_on_every_rank_is_reported(tmp_path: Path, save: str) -> None:
    assert codes(reported(tmp_path, sound((SAVE, save)))) == ["SMDP447"]


@pytest.mark.parametrize(
    "save",
    [
        'if dist.get_rank() == 0:\n    torch.save(model, "model.pt")\n',
        'if args.epochs > 3 and not rank:\n    torch.save(model, "model.pt")\n',
        'def save():\n    if rank != 0:\n        return\n    torch.save(model, "model.pt")\n\n\nsave()\n',
        'def save():\n    torch.save(model, "model.pt")\n\n\nif int(os.environ["RANK"]) == 0:\n    save()\n',
        'def save():\n    torch.save(model, "model.pt")\n\n\ndef end():\n    save()\n\n\nif rank == 0:\n    end()\n',
        'torch.save(model, f"model-{rank}.pt")\n',
        'path = "/opt/ml/model/{}.pt".format(rank)\ntorch.save(model, path)\n',
        'first = dist.get_rank() == 0\nif first:\n    torch.save(model, "model.pt")\n',
        'def is_boss():\n    return dist.get_rank() == 0\n\n\nif is_boss():\n    torch.save(model, "model.pt")\n',
        'def save(last):\n    if last:\n        torch.save(model, "model.pt")\n\n\nsave(rank == 0)\n',
        '@rank_zero_only\ndef save():\n    torch.save(model, "model.pt")\n\n\nsave()\n',
        "import io\nbuffer = io.BytesIO()\ntorch.save(model, buffer)\n",
        'torch.save(model, "model.pt") if rank == 0 else None\n',
        'def never():\n    torch.save(model, "model.pt")\n',
        'first, size = dist.get_rank() == 0, dist.get_world_size()\nif first:\n    torch.save(model, "model.pt")\n',
        'me = dist.get_rank()\nzero = me == 0\nif zero:\n    torch.save(model, "model.pt")\n',
        'place = {"rank": dist.get_rank()}\nif place["rank"] == 0:\n    torch.save(model, "model.pt")\n',
        'if getattr(args, "local_rank", 0) == 0:\n    torch.save(model, "model.pt")\n',
        'import torch.distributed.checkpoint as checkpoint\ncheckpoint.save({}, checkpoint_id="/opt/ml/ck")\n',
        'import torch.distributed.checkpoint as dcp\ndcp.save(model.state_dict(), checkpoint_id="/opt/ml/ck")\n',
        'if args.save:\n    torch.save(model, "model.pt")\n',
        'if ALL:\n    if rank == 0:\n        torch.save(model, "model.pt")\nelse:\n    torch.save(model, "model.pt")\n',
        'if not ALL:\n    torch.save(model, "model.pt")\nelif rank == 0:\n    torch.save(model, "model.pt")\n',
    ],
)
def test_save_on_one_rank_is_accepted(tmp_path: Path, save: str) -> None:
    flag = 'parser.add_argument("--save", action="store_true")\nargs = parser.parse_args()\n'
    assert reported(tmp_path, sound(("args = parser.parse_args()\n", flag), (SAVE, save))) == []


KERAS_CALLBACK = 'tf.keras.callbacks.ModelCheckpoint("/opt/ml/checkpoints/best.h5")'
MANAGER = 'manager = tf.train.CheckpointManager(tf.train.Checkpoint(m=model), "/opt/ml/checkpoints{}", 3)\n'


def keras(after: str) -> str:
    optimizer = "sdp.DistributedOptimizer(tf.keras.optimizers.SGD(0.1))"
    return KERAS.format(before=SDP, optimizer=optimizer, after=after)


def test_keras_save_on_every_rank_is_reported(tmp_path: Path) -> None:
    assert codes(reported(tmp_path, keras('model.save("/opt/ml/model/1")'), TENSORFLOW)) == ["SMDP447"]
    first = keras('if sdp.rank() == 0:\n    model.save("/opt/ml/model/1")')
    assert reported(tmp_path, first, TENSORFLOW) == []


@pytest.mark.parametrize(
    ("save", "call"),
    [
        (f"callbacks = [{KERAS_CALLBACK}]", "tf.keras.callbacks.ModelCheckpoint"),
        (f"model.fit(data, callbacks=[{KERAS_CALLBACK}])", "tf.keras.callbacks.ModelCheckpoint"),
        ("from keras.callbacks import ModelCheckpoint\nsave = ModelCheckpoint(filepath='a.h5')", "ModelCheckpoint"),
        (
            f"save = [{KERAS_CALLBACK}]\nlosses = model.fit(data, callbacks=save)\n"
            "if sdp.rank() == 0:\n    print(losses)",
            "tf.keras.callbacks.ModelCheckpoint",
        ),
        ('tf.keras.models.save_model(model, "/opt/ml/model/2")', "tf.keras.models.save_model"),
        ('import keras\nkeras.saving.save_model(model, filepath="/opt/ml/model/2")', "keras.saving.save_model"),
        ('tf.train.Checkpoint(m=model).save("/opt/ml/checkpoints/a")', "save"),
        ('state = tf.train.Checkpoint(m=model)\nstate.write("/opt/ml/checkpoints/a")', "state.write"),
        (MANAGER.format("") + "manager.save(checkpoint_number=1)", "manager.save"),
    ],
)
def test_other_save_of_keras_on_every_rank_is_reported(tmp_path: Path, save: str, call: str) -> None:
    one = only(reported(tmp_path, keras(save), TENSORFLOW))
    assert one.code == "SMDP447"
    assert one.message.startswith(f"every rank calls {call} with the same path")
    assert "if rank() == 0:" in one.help


@pytest.mark.parametrize(
    "save",
    [
        f"callbacks = []\nif sdp.rank() == 0:\n    callbacks.append({KERAS_CALLBACK})",
        f"callbacks = [{KERAS_CALLBACK}] if sdp.rank() == 0 else []",
        f"first = {KERAS_CALLBACK}\nif sdp.rank() == 0:\n    model.fit(data, callbacks=[first])",
        f"callbacks = [{KERAS_CALLBACK}]\nmodel.fit(data, callbacks=callbacks if sdp.rank() == 0 else [])",
        f"first = {KERAS_CALLBACK}\nextra = [first]\nif sdp.rank() == 0:\n    callbacks += extra",
        'tf.keras.callbacks.ModelCheckpoint(f"/opt/ml/checkpoints/{sdp.rank()}.h5")',
        'if sdp.rank() == 0:\n    tf.keras.models.save_model(model, "/opt/ml/model/2")',
        f"if sdp.size() > 1:\n    if sdp.rank() == 0:\n        {KERAS_CALLBACK}\nelse:\n    {KERAS_CALLBACK}",
        MANAGER.format("") + "if sdp.rank() == 0:\n    manager.save()",
        MANAGER.replace('"/', 'f"/').format("/{sdp.rank()}") + "manager.save()",
        'with tf.io.gfile.GFile("/opt/ml/output/log", "w") as state:\n    state.write("text")',
        "from pytorch_lightning.callbacks import ModelCheckpoint\nModelCheckpoint('a')",
    ],
)
def test_other_save_of_keras_on_one_rank_is_accepted(tmp_path: Path, save: str) -> None:
    assert "SMDP447" not in codes(reported(tmp_path, keras(save), TENSORFLOW))


# 448: epochs


@pytest.mark.parametrize(
    "loop",
    [
        LOOP,
        "for epoch in range(3, 10):\n",
        "for epoch in tqdm(range(args.epochs)):\n",
        "for _ in range(args.epochs):\n    epoch = 0\n",
    ],
)
def test_loop_without_set_epoch_is_reported(tmp_path: Path, loop: str) -> None:
    one = only(reported(tmp_path, sound((LOOP, loop), (SET_EPOCH, ""))))
    assert (one.code, one.help) == ("SMDP448", "call sampler.set_epoch(epoch) at the start of the loop")


@pytest.mark.parametrize(
    ("loader", "called"),
    [
        (
            "loader = DataLoader(train_data, sampler=DistributedSampler(train_data))\n",
            "loader.sampler.set_epoch(epoch)",
        ),
        ("batches = wrapped(DistributedSampler(train_data))\n", "its set_epoch(epoch)"),
    ],
)
def test_help_names_sampler_of_loader(tmp_path: Path, loader: str, called: str) -> None:
    one = only(reported(tmp_path, sound((SAMPLER, ""), (LOADER, loader), (SET_EPOCH, ""))))
    assert one.code == "SMDP448"
    assert one.help is not None
    assert f"call {called} at the start of the loop" in one.help


@pytest.mark.parametrize(
    "changes",
    [
        ((SAMPLER, "sampler = DistributedSampler(train_data, shuffle=False)\n"),),
        ((LOOP, "for epoch in range(1):\n"),),
        ((LOOP, "for epoch in range(5, 6):\n"),),
        ((LOOP, "for step in range(1000):\n"),),
        ((LOOP, LOOP + "    loader.sampler.set_epoch(epoch)\n"),),
    ],
)
def test_loop_that_needs_no_set_epoch_is_accepted(tmp_path: Path, changes: Changes) -> None:
    assert reported(tmp_path, sound(*changes, (SET_EPOCH, ""))) == []


def test_epochs_of_job_file_take_precedence(tmp_path: Path) -> None:
    once = (("{epochs: 2}", "{epochs: 1}"),)
    assert reported(tmp_path, sound((SET_EPOCH, "")), once) == []


# 449: requirements


@pytest.mark.parametrize(
    "line",
    [
        "torch==1.13.1",
        "torch<2",
        "torch>=2.1",
        "torch~=2.1.0",
        "torch==2.0.*,!=2.0.1",
        "torch==2.0.1+cpu",
        "torch==2.0.1+cu117",
        "numpy==2.1.0",
        "numpy>=2",
        "nvidia-cudnn-cu12",
        "cupy-cuda12x==13.0",
        "cupy-cuda102",
    ],
)
def test_requirement_that_replaces_image_package_is_reported(tmp_path: Path, line: str) -> None:
    one = only(reported(tmp_path, "print('trained')\n", modules={"requirements.txt": f"tqdm\n{line}\n"}))
    assert (one.code, one.text, one.span and one.span.line) == ("SMDP449", line, 2)


@pytest.mark.parametrize(
    "line",
    [
        "torch",
        "torch>=1.10",
        "torch==2.0.1",
        "torch==2.0.1+cu118",
        "torch~=2.0.0",
        "torch==2.0.*",
        "torch==2.1.0; python_version < '3.8'",
        "numpy<2",
        "numpy>=1.20",
        "numpy==1.26.4",
        "nvidia-ml-py",
        "nvidia-cudnn-cu11",
        "cupy-cuda11x",
        "tensorflow==2.11.0",
        "torchmetrics==1.0",
    ],
)
def test_requirement_that_fits_image_is_accepted(tmp_path: Path, line: str) -> None:
    assert reported(tmp_path, "print('trained')\n", modules={"requirements.txt": f"{line}\n"}) == []


def test_tensorflow_cpu_requirement_is_reported(tmp_path: Path) -> None:
    found = reported(tmp_path, "print('trained')\n", TENSORFLOW, {"requirements.txt": "tensorflow-cpu==2.11.1\n"})
    assert codes(found) == ["SMDP449"]


# 450: model parallelism


def test_model_parallelism_is_reported(tmp_path: Path) -> None:
    given = (("{epochs: 2}", "{epochs: 2, mp_parameters: {partitions: 2}}"),)
    one = only(reported(tmp_path, "print('trained')\n", given))
    assert (one.code, one.text) == ("SMDP450", "mp_parameters")
    imported = only(reported(tmp_path, "import smdistributed.modelparallel.torch as smp\nsmp.init()\n"))
    assert (imported.code, imported.span and imported.span.line) == ("SMDP450", 1)


@pytest.mark.parametrize(
    "script",
    [
        "try:\n    import smdistributed.modelparallel.torch as smp\nexcept ImportError:\n    smp = None\n",
        "def later():\n    import smdistributed.modelparallel.torch as smp\n    return smp\n",
        "import smdistributed.dataparallel.torch.torch_smddp\n",
    ],
)
def test_optional_model_parallelism_is_accepted(tmp_path: Path, script: str) -> None:
    assert reported(tmp_path, script) == []
