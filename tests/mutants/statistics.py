"""Mutants of the statistics, the scores and the report."""

from tests.mutants.mutant import Mutant

STATISTICS = "statistics.py"
TESTS = "tests/test_statistics.py"
REPORT = "tests/study/report"

MUTANTS = [
    Mutant(
        "the IQM drops a tenth instead of a quarter",
        STATISTICS,
        "cut = int(0.25 * count)",
        "cut = int(0.1 * count)",
        f"{TESTS} -k definitions",
    ),
    Mutant(
        "the median is taken over runs instead of task means",
        STATISTICS,
        "np.median(_task_means(samples), 0)",
        "np.median(np.concatenate(samples, -1), -1)",
        f"{TESTS} -k definitions",
    ),
    Mutant(
        "the optimality gap counts scores above the threshold",
        STATISTICS,
        "np.minimum(sample, threshold)",
        "sample",
        f"{TESTS} -k definitions",
    ),
    Mutant(
        "the bootstrap mixes the runs of different tasks",
        STATISTICS,
        "yield [sample[rng.integers(len(sample), size=(count, len(sample)))]",
        "everything = np.concatenate(samples)\n"
        "        yield [everything[rng.integers(len(everything), size=(count, len(sample)))]",
        f"{TESTS} -k within_their_task",
    ),
    Mutant(
        "the interval of few runs is a bootstrap",
        STATISTICS,
        'if statistic == "mean" and fewest < FEW_RUNS:',
        'if statistic == "mean" and fewest < 2:',
        f"{TESTS} -k few_runs",
    ),
    Mutant(
        "intervals of few runs are not marked as unreliable",
        STATISTICS,
        '"bootstrap", reliable=fewest >= FEW_RUNS)',
        '"bootstrap")',
        f"{TESTS} -k unreliable",
    ),
    Mutant(
        "the t-test uses pooled degrees of freedom",
        STATISTICS,
        "return _MeanSpread(variance, 1 / shares)",
        "return _MeanSpread(variance, float(sum(freedom for _, freedom in parts)))",
        f"{TESTS} -k welch",
    ),
    Mutant(
        "the t-test is one-sided",
        STATISTICS,
        "p_value = 2 * student_cdf",
        "p_value = student_cdf",
        f"{TESTS} -k welch",
    ),
    Mutant(
        "ties count as wins",
        STATISTICS,
        "+ 0.5 * (a[:, None] == b)",
        "+ 1.0 * (a[:, None] == b)",
        f"{TESTS} -k ties",
    ),
    Mutant(
        "the p-value of random permutations can be zero",
        STATISTICS,
        "(extreme + 1) / (resamples + 1)",
        "extreme / resamples",
        f"{TESTS} -k never_zero",
    ),
    Mutant(
        "equal differences are lost to rounding",
        STATISTICS,
        "observed - slack",
        "observed + slack",
        f"{TESTS} -k enumerates",
    ),
    Mutant(
        "Holm's p-values decrease",
        STATISTICS,
        "largest = max(largest, min(1.0, value * (len(known) - rank)))",
        "largest = min(1.0, value * (len(known) - rank))",
        f"{TESTS} -k holm",
    ),
    Mutant(
        "Holm counts comparisons that could not be made",
        STATISTICS,
        "value * (len(known) - rank)",
        "value * (len(p_values) - rank)",
        f"{TESTS} -k holm",
    ),
    Mutant(
        "evaluations label the range of two returns as an interval",
        "runtime/evaluation.py",
        "[mean.low, mean.high] if several",
        "[min(self.returns), max(self.returns)] if several",
        "tests/runtime/test_control_config.py -k few_episodes",
    ),
    Mutant(
        "packaged references override the user's",
        "scores.py",
        "if custom and name in custom:",
        "if custom and name in custom and name not in _packaged().environments:",
        "tests/test_scores.py",
    ),
    Mutant(
        "names end the script element of the data",
        "study/report/page.py",
        'text.replace("<", "\\\\u003c")',
        "text",
        f"{REPORT}/test_page.py -k hostile",
    ),
    Mutant(
        "names in a report are not escaped",
        "study/report/page.py",
        "return html.escape(printable(text), quote=True)",
        "return printable(text)",
        f"{REPORT}/test_page.py -k hostile",
    ),
    Mutant(
        "the server answers to any host name",
        "study/report/server.py",
        'if self.headers.get("Host", "").lower() not in self.server.hosts:',
        "if False:",
        f"{REPORT}/test_server.py -k other_hosts",
    ),
    Mutant(
        "p-values of a report are not corrected",
        "study/report/analysis.py",
        "corrected = holm([pair.difference.p_value for pair in found])",
        "corrected = [pair.difference.p_value for pair in found]",
        f"{REPORT}/test_analysis.py -k both_tests",
    ),
    Mutant(
        "runs that failed are compared",
        "study/report/results.py",
        "    if not run.status.has_ended:\n        return None\n",
        "",
        f"{REPORT}/test_analysis.py -k not_ended",
    ),
    Mutant(
        "labels of two studies are merged",
        "study/report/results.py",
        "if len(studies) > 1 else set()",
        "if len(studies) > 9 else set()",
        f"{REPORT}/test_analysis.py -k distinguished",
    ),
    Mutant(
        "a low loss loses",
        "study/report/analysis.py",
        "return value if results.lower_is_better else -value",
        "return -value",
        f"{REPORT}/test_analysis.py -k lower",
    ),
]
