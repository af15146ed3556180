"""Reads the Census-Income data set (KDD) into tensors: for census.py.

199,523 people to train on and 99,762 to test on, 42 columns each, from the surveys of 1994 and
1995; the label says whether an income is above 50,000 dollars. script/fetch-census gets the two
files. A missing or wrong file is an error that names it.
"""
import csv
import itertools
import os
from array import array
from pathlib import Path
from typing import NamedTuple

import torch

FILES = {"train": "census_income_1994_1995_train.csv", "test": "census_income_1994_1995_test.csv"}
COLUMNS = 42
LABELS = {"- 50000.": 0.0, "50000+.": 1.0}  # the last column
# Age, wage per hour, capital gains, losses, dividends, persons worked for, weeks worked.
NUMBERS = (0, 5, 16, 17, 18, 30, 39)
WEIGHT = 24  # how many people a row stands for: not an attribute, says the data set's description
WORDS = tuple(c for c in range(COLUMNS - 1) if c not in NUMBERS and c != WEIGHT)  # 33 of them
UNKNOWN = 0  # the id of a word that the training data does not have


class People(NamedTuple):
    floats: torch.Tensor  # float32 [count, 7], of mean 0 and deviation 1 in the training data
    ids: torch.Tensor  # int64 [count, 33], by column from 0
    labels: torch.Tensor  # float32 [count]


def folder(given=None):
    """Where the data is: what was given, $CAIRN_CENSUS, or where script/fetch-census puts it."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(given or os.environ.get("CAIRN_CENSUS") or Path(cache) / "cairn" / "census")


def read(path, vocabularies, learn, limit=None):
    """The people of a file, their numbers as they stand there. With `learn` words that are new get
    an id in the vocabularies of their columns."""
    numbers, ids, labels = array("f"), array("i"), array("f")
    try:
        with open(path, newline="") as file:
            for row in itertools.islice(csv.reader(file, skipinitialspace=True), limit):
                numbers.extend([float(row[c]) for c in NUMBERS])
                words = zip(vocabularies, [row[c] for c in WORDS])
                if learn:
                    ids.extend([known.setdefault(word, len(known) + 1) for known, word in words])
                else:
                    ids.extend([known.get(word, UNKNOWN) for known, word in words])
                labels.append(LABELS[row[COLUMNS - 1]])
    except FileNotFoundError:
        advice = "fetch the data with script/fetch-census, or give --data"
        raise SystemExit(f"{path} is not there: {advice}") from None
    except (KeyError, IndexError, ValueError):
        raise SystemExit(f"{path}, line {len(labels) + 1}: not a line of 42 columns of the Census-"
                         "Income data: fetch it again with script/fetch-census") from None
    if not labels:
        raise SystemExit(f"{path} is empty: fetch it again with script/fetch-census")
    return People(torch.frombuffer(numbers, dtype=torch.float32).reshape(-1, len(NUMBERS)),
                  torch.frombuffer(ids, dtype=torch.int32).reshape(-1, len(WORDS)).long(),
                  torch.frombuffer(labels, dtype=torch.float32))


def load(where, limit=None):
    """→ the people to train on, those to test on, and how many ids each of the 33 columns has."""
    vocabularies = [{} for _ in WORDS]
    train = read(Path(where) / FILES["train"], vocabularies, True, limit)
    test = read(Path(where) / FILES["test"], vocabularies, False, limit)
    # Sums of money are mostly 0 and have long tails.
    numbers = train.floats.log1p()
    mean, deviation = numbers.mean(0), numbers.std(0).clamp_min(1e-6)
    return (train._replace(floats=(numbers - mean) / deviation),
            test._replace(floats=(test.floats.log1p() - mean) / deviation),
            [len(known) + 1 for known in vocabularies])
