"""What every term of the report means, in words and as a formula; it is part of the report."""

from __future__ import annotations

from schemas.report import Definition

METHOD = (
    Definition(
        term="loss",
        formula="loss = Σ −ln p(token | earlier tokens of the record)",
        meaning="Nats, over the scored tokens of the records. A prefix token (BOS) is context and never scored, and so "
        "are earlier notes of the encounter in a run that is marked to have them.",
    ),
    Definition(
        term="nll_per_token", formula="Σ loss / Σ tokens", meaning="Mean negative log-likelihood of a token, in nats."
    ),
    Definition(
        term="token_perplexity",
        formula="exp(Σ loss / Σ tokens)",
        meaning="Comparable between models that share a tokenizer only.",
    ),
    Definition(
        term="word_perplexity",
        formula="exp(Σ loss / Σ words)",
        meaning="Words are separated by white space; comparable between tokenizers.",
    ),
    Definition(
        term="byte_perplexity",
        formula="exp(Σ loss / Σ bytes)",
        meaning="Bytes of the UTF-8 text; comparable between tokenizers. Equals 2 to the power of bits_per_byte.",
    ),
    Definition(
        term="bits_per_byte",
        formula="Σ loss / (Σ bytes · ln 2)",
        meaning="Bits that the model needs for one byte of text; comparable between tokenizers.",
    ),
    Definition(
        term="micro average",
        formula="exp(Σ loss / Σ tokens) over all strata",
        meaning="Every token counts the same. All figures of a set of records are micro averages unless named macro.",
    ),
    Definition(
        term="macro average",
        formula="Σ figure(stratum) / number of strata",
        meaning="Every stratum with scored tokens counts the same, however small. It answers another question than "
        "the micro average and is never a substitute for it.",
    ),
    Definition(
        term="exact sums",
        formula=None,
        meaning="Losses are summed as integers, not as floating-point numbers, so the order of records, files and "
        "ranks cannot change a bit. Each figure is rounded once by its division; exp is taken last.",
    ),
    Definition(
        term="drift",
        formula="exp(Σ (loss − loss in fp32) / Σ tokens) − 1",
        meaning="Of a reduced precision, over a sample of its records by their ids; the 95 % interval is that of a "
        "ratio estimator over records, by Student's t. Where no precision was checked, none is shown.",
    ),
    Definition(
        term="records and patients",
        formula=None,
        meaning="Counts are of scored records. Patients are distinct keyed ids among them; records without a known "
        "patient are counted apart. Patients of two strata may be the same, so their counts do not add up.",
    ),
    Definition(
        term="strata",
        formula=None,
        meaning="A missing value is a stratum of its own, shown as (null); an empty one is shown as (empty).",
    ),
    Definition(
        term="parts of the loss",
        formula="Σ loss(part) = loss",
        meaning="Where a run splits losses, each token is of one class, and at one position: how many tokens of its "
        "record stand before it. Losses of a record lie on a grid on which their sums are not rounded.",
    ),
    Definition(
        term="suppressed",
        formula=None,
        meaning="Strata of fewer records or patients than the threshold are hidden, and others with them, so that "
        "neither sums and differences of what is published nor bounds give a hidden count. A stratum does not say "
        "for which of the two reasons it is hidden. Macro averages are over the published strata.",
    ),
    Definition(
        term="infinite, undefined",
        formula=None,
        meaning="A figure that FP64 cannot hold is infinite; one over no token, word or byte is undefined. Neither is "
        "shown as a number.",
    ),
)
