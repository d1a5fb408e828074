import click


@click.command()
@click.option("--epochs", type=int, default=3)
@click.option("--amp/--no-amp", default=False)
def main(epochs: int, amp: bool) -> None:
    print(epochs, amp)


if __name__ == "__main__":
    main()
