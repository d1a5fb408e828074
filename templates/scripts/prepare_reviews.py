"""Make two channels of short product reviews in English: 2,000 for training and 400 for tests.

    python prepare_reviews.py data/reviews

The reviews are composed of phrases, so that the example needs no download. A word alone does not decide the label:
words are negated, and after "but" the second opinion counts. No review is in both channels. Each channel is a file
reviews.csv with the columns text and label (1: positive, 0: negative), which reviews of your own can replace.
"""

import argparse
import csv
import random
from pathlib import Path

TRAIN, TEST = 2000, 400
THINGS = (
    *("the battery", "the screen", "the keyboard", "the sound", "the camera", "the cable", "the case", "the manual"),
    *("the coffee", "the delivery", "the packaging", "the price", "the support", "the fit", "the colour", "the app"),
)
GOOD = ("excellent", "great", "reliable", "lovely", "impressive", "solid", "perfect", "good", "useful", "pleasant")
BAD = ("awful", "terrible", "flimsy", "useless", "disappointing", "noisy", "faulty", "bad", "slow", "ugly")
VERBS = ("is", "was", "turned out to be", "feels", "seems")
NEGATED = {"is": "is not", "was": "was not", "feels": "does not feel", "seems": "does not seem"}
OPENINGS = ("", "", "honestly ,", "after a week", "for this money", "to my surprise", "as expected ,")

Review = tuple[str, int]


def opinion(draw: random.Random, label: int) -> str:
    """A statement about a thing, every fourth one with a negation."""
    verb, negated = draw.choice(VERBS), draw.random() < 0.25
    words = GOOD if (label == 1) != (negated and verb in NEGATED) else BAD
    verb = NEGATED.get(verb, verb) if negated else verb
    return f"{draw.choice(THINGS)} {verb} {draw.choice(words)}"


def review(draw: random.Random) -> Review:
    label = draw.randrange(2)
    text = opinion(draw, label)
    if draw.random() < 0.4:
        text = f"{opinion(draw, 1 - label)} but {text}"
    return f"{draw.choice(OPENINGS)} {text} .".strip(), label


def write_channel(folder: Path, reviews: list[Review]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "reviews.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([("text", "label"), *reviews])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=5)
    arguments = parser.parse_args()
    draw = random.Random(arguments.seed)
    reviews: dict[str, int] = {}
    while len(reviews) < TRAIN + TEST:
        reviews.update([review(draw)])
    write_channel(arguments.folder / "train", list(reviews.items())[:TRAIN])
    write_channel(arguments.folder / "test", list(reviews.items())[TRAIN:])
    print(f"{TRAIN} reviews for training and {TEST} for tests are in {arguments.folder}")


if __name__ == "__main__":
    main()
