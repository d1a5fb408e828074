"""CPU hosts send batches over TCP to the hosts that train. SageMaker starts this script on every host."""

import json
import os
import random
import socket
import struct
import threading
import time
from pathlib import Path

PORT, ROWS, STEPS = 18_000, 32, 40


def send(connection, value):
    text = json.dumps(value).encode()
    connection.sendall(struct.pack("!I", len(text)) + text)


def receive(connection):
    (size,) = struct.unpack("!I", read(connection, 4))
    return json.loads(read(connection, size))


def read(connection, size):
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionError("the other side has closed the connection")
        data += part
    return data


def serve():
    """On a data host: send random rows of the channel to each worker, until rank 0 says that the training is over."""
    files = sorted(Path(os.environ["SM_CHANNEL_TRAIN"]).iterdir())
    rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    is_over = threading.Event()

    def answer(connection):
        while (question := receive(connection)) == "batch":
            send(connection, random.choices(rows, k=ROWS))
        if question == "over":
            is_over.set()

    def accept(server):
        while True:
            threading.Thread(target=answer, args=[server.accept()[0]], daemon=True).start()

    server = socket.create_server(("", PORT))
    threading.Thread(target=accept, args=[server], daemon=True).start()
    print(f"{len(rows)} rows are served", flush=True)
    is_over.wait()


def connect(host):
    while True:
        try:
            return socket.create_connection((host, PORT))
        except OSError:
            time.sleep(0.1)  # the data host has not started yet


def train(data_hosts):
    import torch
    import torch.distributed as dist

    has_gpus = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if has_gpus else torch.device("cpu")
    if has_gpus:
        torch.cuda.set_device(device)
    dist.init_process_group("smddp" if has_gpus else "gloo")
    rank = dist.get_rank()
    connections = [connect(host) for host in data_hosts]
    mine = connections[rank % len(connections)]
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    for step in range(STEPS):
        send(mine, "batch")
        batch = torch.tensor(receive(mine), device=device)
        loss = torch.nn.functional.mse_loss(model(batch[:, :2]), batch[:, 2:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    total = loss.detach().clone()
    dist.all_reduce(total)
    if rank == 0:
        print(
            f"trained on {dist.get_world_size()} workers, loss {total.item() / dist.get_world_size():.6f}", flush=True
        )
        torch.save(model.module.state_dict(), f"{os.environ['SM_MODEL_DIR']}/model.pt")
    dist.barrier()
    for connection in connections:
        send(connection, "over" if rank == 0 else "leave")
    dist.destroy_process_group()


if __name__ == "__main__":
    groups = json.loads(os.environ["SM_INSTANCE_GROUPS_DICT"])
    if os.environ["SM_CURRENT_INSTANCE_GROUP"] == "data":
        serve()
    else:
        train(groups["data"]["hosts"])
