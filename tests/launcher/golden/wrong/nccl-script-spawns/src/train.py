import torch.multiprocessing as mp


def main(rank):
    print(rank)


if __name__ == "__main__":
    mp.spawn(main, nprocs=8)
