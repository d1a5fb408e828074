from absl import app, flags

flags.DEFINE_integer("epochs", 3, "how often the data is read")
flags.DEFINE_bool("amp", False, "mixed precision")


def main(_: list[str]) -> None:
    print(flags.FLAGS.epochs)


if __name__ == "__main__":
    app.run(main)
