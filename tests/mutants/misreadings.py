"""Misreadings of docs/device-protocol.md that `make mutants` plants in both clients.

Each is planted in `localclient` (with the part of `blender/` and `streams/` that devices use) and
in `webclient/src`, and the named vector must then fail: a stranger's client that reads the page so
would fail it, too. The text must occur once in the client's code. What no vector can catch is in
`UNSEEN`, with the reason.
"""

# ruff: noqa: E501  # lines of the code that is misread

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MISREADINGS", "UNSEEN", "Misreading"]


@dataclass(frozen=True, slots=True)
class Misreading:
    """What the client gets wrong, (right, wrong) in each language, and the vector that fails."""

    what: str
    python: tuple[str, str]
    javascript: tuple[str, str]
    vector: str


MISREADINGS = (
    # 1. Text.
    Misreading(
        "text is not composed again after folding",
        (
            '" ".join(_nfc(_nfc(query).casefold()).split())',
            '" ".join(_nfc(query).casefold().split())',
        ),
        ("fold(raw.normalize()).normalize()", "fold(raw.normalize())"),
        "normalise: 3 '\\u01f0' 'https://example.org/'",
    ),
    Misreading(
        "text is composed only up to U+FFFF, as a reader of UTF-16 does",
        (
            'return unicodedata.normalize("NFC", text)',
            'return "".join(\n        c if max(c, "a") > "\\uffff" else unicodedata.normalize("NFC", c)\n'
            '        for c in __import__("re").split("([\\U00010000-\\U0010ffff])", text)\n    )',
        ),
        (
            "fold(raw.normalize()).normalize()",
            "fold(raw.replace(/[\\0-\\uffff]+/gu, (t) => t.normalize())).replace(/[\\0-\\uffff]+/gu, (t) => t.normalize())",
        ),
        "normalise: 16 '\\U00011099\\U000110ba' 'https://example.org/'",
    ),
    Misreading(
        "lengths are counted in characters",
        (
            'size = len(text.encode())\n    except UnicodeEncodeError:\n        raise ParameterError(f"{what} must be valid',
            'text.encode()\n        size = len(text)\n    except UnicodeEncodeError:\n        raise ParameterError(f"{what} must be valid',
        ),
        (
            "(UNPAIRED.test(text) ? 0 : utf8.encode(text).length)",
            "(UNPAIRED.test(text) ? 0 : text.length)",
        ),
        "normalise: 117 '\\xe9\\xe9\\xe9\\xe9\\xe9\\xe9\\xe9\\xe9\\xe9\\xe9\\xe9\\xe9\\xe9\\xe9\\xe 'https://example.org/'",
    ),
    # 2. Head lists.
    Misreading(
        "bytes in another spelling are accepted",
        ("same = document.to_bytes() == data", "same = True"),
        ("holds(body) && spell(body) === text ? body", "holds(body) ? body"),
        "documents: refused, white space inside",
    ),
    Misreading(
        "records beyond `listed` have cells, too",
        (
            "cells = Cells(self.records[: self.listed], self.query_wildcards)",
            "cells = Cells(tuple(dict.fromkeys(self.records)), self.query_wildcards)",
        ),
        ("for (const pair of records.slice(0, listed)) {", "for (const pair of records) {"),
        "documents: accepted, listed are fewer than the records: only they have cells",
    ),
    Misreading(
        "figures that devices ignore may be anything",
        (
            "noisy_counts=None if counts is None else tuple(_whole(c) for c in counts)",
            "noisy_counts=None if counts is None else tuple(counts)",
        ),
        ("d.noisy_counts.every(whole))) &&", "true)) &&"),
        "documents: refused, a count that is no whole number",
    ),
    Misreading(
        "a record of a listed query falls into the last cell, not into its query's",
        (
            "if self.query_wildcards and record.query in self._query_number:",
            "if False and record.query in self._query_number:",
        ),
        (
            "const query = query_wildcards ? queries.get(record[0]) : undefined",
            "const query = undefined",
        ),
        "conversations: a record of a listed query counts for the query",
    ),
    # 3. Answers.
    Misreading(
        "each of m answers gets the whole epsilon",
        (
            "        epsilon = Fraction(spec.epsilon) / spec.answers",
            "        epsilon = Fraction(spec.epsilon)",
        ),
        (
            "[each(exact(spec.epsilon)), each(exact(spec.delta))]",
            "[exact(spec.epsilon), each(exact(spec.delta))]",
        ),
        "channels: 68 two-stage, 3 cells",
    ),
    Misreading(
        "the listed share is not used for the width",
        (
            "shown = f + (g - f) * Fraction(listed_64ths, 64)",
            "shown = f + (g - f) * Fraction(16, 64)",
        ),
        ("const lambda = big(listed_64ths)", "const lambda = 16n"),
        "widths: subset-or-none, epsilon 0.5, 5 records, cap 4, 1/64",
    ),
    Misreading(
        "a stated width is believed",
        ("self.cells_per_answer in (None, computed),", "True,"),
        ("if (spec.cells_per_answer !== built?.cellsPerAnswer)", "if (!built)"),
        "conversations: the device refuses a width above what follows",
    ),
    Misreading(
        "a device that hides its cell may name it",
        (
            "chosen = [other + (other >= cell) for other in others]",
            "chosen = [other + (other > cell) for other in others]",
        ),
        ("numbers.map((x) => x + +(x >= cell))", "numbers.map((x) => x + +(x > cell))"),
        "channels: 8 randomized-response, 3 cells",
    ),
    # 4. Reports.
    Misreading(
        "one record is drawn for all answers",
        (
            "return [records[dice.below(len(records))] for _ in range(answers)]",
            "return [records[dice.below(len(records))]] * answers",
        ),
        (
            "records.length ? records[below(dice, records.length)] : null,",
            "records.length ? records[0] : null,",
        ),
        "reports: two-stage, many and repeated",
    ),
    Misreading(
        "short numbers make short reports",
        ('return canonical_json(body) + b" " * missing', "return canonical_json(body)"),
        (
            "body + ' '.repeat(answers.flat().reduce((sum, cell) => sum + digits(K - 1) - digits(cell), 0))",
            "body",
        ),
        "reports: two-stage, many and repeated",
    ),
    Misreading(
        "a record made in the window's last second plus one is in it",
        ("if start_s <= timed.at_s < end_s]", "if start_s <= timed.at_s <= end_s]"),
        ("startS <= at && at < endS", "startS <= at && at <= endS"),
        "conversations: a report by subset-selection, dice at 63/64",
    ),
    # 5. Limits and budget.
    Misreading(
        "an entry leaves the period a second late",
        ("if entry.at_s > now_s - limits.period_s]", "if entry.at_s >= now_s - limits.period_s]"),
        ("if (entry.at_s > nowS - limits.periodS) {", "if (entry.at_s >= nowS - limits.periodS) {"),
        "budget: the first leaves after period_s to the second",
    ),
    Misreading(
        "budgets are added as binary floats",
        ("return Fraction(repr(value))", "return Fraction(value)"),
        (
            "const [digits, e] = x.toExponential().split('e')\n  const [whole, part = ''] = digits.split('.')",
            "const [digits, e] = x.toExponential(60).split('e')\n  const [whole, part = ''] = digits.split('.')",
        ),
        "budget: three tenths fit three tenths",
    ),
    Misreading(
        "windows may overlap",
        ("if entry.window_start_s < last.window_end_s:\n        raise", "if False:\n        raise"),
        ("if (last && entry.window_start_s < last.window_end_s) {", "if (false) {"),
        "budget: a window that overlaps",
    ),
    Misreading(
        "a clock that was set back is believed",
        ("if entry.at_s < last.at_s:", "if False:"),
        ("if (last && entry.at_s < last.at_s) {", "if (false) {"),
        "budget: a clock that ran backwards",
    ),
    Misreading(
        "entries are forgotten with the period",
        ("remember_s = max(limits.period_s, _REMEMBER_S)", "remember_s = limits.period_s"),
        (
            "const rememberS = Math.max(limits.periodS, REMEMBER_S)",
            "const rememberS = limits.periodS",
        ),
        "conversations: an application that lengthens its period spends no more",
    ),
    Misreading(
        "a lost state starts a second budget",
        ("if data is None and begun:", "if False:"),
        ("text ?? (begun ? '' : JSON.stringify(FRESH))", "text ?? JSON.stringify(FRESH)"),
        "conversations: a lost state starts no second budget",
    ),
    Misreading(
        "a damaged state starts a second budget",
        (
            "state = State.from_bytes(data)",
            "try:\n                state = State.from_bytes(data)\n            except StateUnreadable:\n                state = State()",
        ),
        (
            "      if (!lostToo) throw",
            "      return { text, state: { ...FRESH }, records }\n      if (!lostToo) throw",
        ),
        "conversations: a damaged state stops all spending",
    ),
    Misreading(
        "forgetting an unreadable state creates a fresh one",
        ('self._files.replace("state", b"")', "self.save(State())"),
        (
            "return { text, state: /** @type {any} */ ({}), records }",
            "return { text, state: { ...FRESH }, records }",
        ),
        "conversations: forgetting a damaged state leaves it unreadable",
    ),
    Misreading(
        "reports may be asked for at any time after the window",
        (
            "document.reports_until_s - document.window_end_s <= _REPORTING_WINDOWS * length_s,",
            "True,",
        ),
        ("require(reports_until_s - window_end_s <= 4 * lengthS,", "require(true,"),
        "conversations: the device refuses reports asked for beyond four windows",
    ),
    Misreading(
        "a window that has not ended is answered",
        ("document.window_end_s <= now_s + limits.max_clock_skew_s,", "True,"),
        ("const ended = window_end_s <= nowS + limits.maxClockSkewS", "const ended = true"),
        "conversations: the device refuses a window that has not ended",
    ),
    Misreading(
        "an epoch may have any number",
        ("epoch <= most,", "True,"),
        ("const most = Math.floor(this.#now() / minWindowS)", "const most = Infinity"),
        "conversations: the device refuses an epoch's number too high for the time since 1970",
    ),
    Misreading(
        "raw records are kept until someone asks about them",
        (
            "store.forget(max(state.forget_before_s, now_s - context.limits.keep_records_s))",
            "store.forget(state.forget_before_s)",
        ),
        (
            "Math.max(state.forget_before_s, this.#now() - this.#limits.keepRecordsS)",
            "state.forget_before_s",
        ),
        "conversations: records that nobody asks about are forgotten",
    ),
    # 6. Conversations: reports.
    Misreading(
        "a list's `Date` is not compared",
        ("if abs(server_s - now_s) > limits.max_clock_skew_s:", "if False:"),
        ("if (Math.abs(serverS - this.#now()) > this.#limits.maxClockSkewS) {", "if (false) {"),
        "conversations: a wrong clock",
    ),
    Misreading(
        "dates in any form are compared",
        ("if not _HTTP_DATE.fullmatch(date):", "if not date:"),
        (
            "answer.headers.get('date')?.match(HTTP_DATE)?.[0] ?? ''",
            "answer.headers.get('date') ?? ''",
        ),
        "conversations: a date in another form is no date",
    ),
    Misreading(
        "opting in ignores `Date`",
        ("check_clock(response, now_s, limits)\n    try:", "try:"),
        (
            "if (answer?.status !== 200) throw this.#tryLater(null, answer)\n    this.#checkClock(answer)",
            "if (answer?.status !== 200) throw this.#tryLater(null, answer)",
        ),
        "conversations: opting in with a wrong clock",
    ),
    Misreading(
        "a cohort is not kept across a restart",
        ('cohorts=fields["cohorts"],', "cohorts=0,"),
        (
            "if (cohorts !== loaded.state.cohorts) {",
            "if (cohorts !== this.cohorts) {\n      this.cohorts = cohorts",
        ),
        "conversations: a cohort is kept across restarts",
    ),
    Misreading(
        "a scheduled send is not kept across a restart",
        (
            "scheduled_send=scheduled\n        and ScheduledSend(",
            "scheduled_send=None\n        and ScheduledSend(",
        ),
        (
            "const { scheduled_send } = loaded.state\n    const kept =\n      scheduled_send?.mode",
            "const { scheduled_send } = loaded.state\n    const kept =\n      this.kept && scheduled_send?.mode",
        ),
        "conversations: a scheduled send is kept across restarts",
    ),
    Misreading(
        "a missed scheduled send is drawn again",
        ("_missed_send_time(state, document) or draw_send_time(", "draw_send_time("),
        ("missed?.subject === id ? missed.send_at_s : startS", "startS"),
        "conversations: a missed scheduled send is not drawn again after a restart",
    ),
    Misreading(
        "the last tenth is not left for sending again",
        ("max(1, (until_s - start_s) * 9 // 10)", "max(1, until_s - start_s)"),
        ("Math.max(1, Math.floor(((untilS - startS) * 9) / 10))", "Math.max(1, untilS - startS)"),
        "conversations: a report from the first look to accepted",
    ),
    Misreading(
        "reported records are never forgotten",
        (
            "store.forget(forget_before_s)\n    return pending\n\n\ndef _answers",
            "pass\n    return pending\n\n\ndef _answers",
        ),
        (
            "const safe = await this.#commit(loaded, changes, forget_before_s)",
            "const safe = await this.#commit(loaded, changes)",
        ),
        "conversations: reported records are forgotten",
    ),
    Misreading(
        "records of windows passed over are never forgotten",
        ("context.store.forget(document.window_end_s)", "pass"),
        (
            "this.#commit(loaded, { forget_before_s: window_end_s }, window_end_s)",
            "this.#commit(loaded, { forget_before_s: window_end_s })",
        ),
        "conversations: records of windows passed over are forgotten",
    ),
    Misreading(
        "a window that was passed over is answered later",
        ("if document.window_end_s <= state.forget_before_s:", "if False:"),
        ("unless(window_end_s <= forget_before_s,", "unless(false,"),
        "conversations: a window passed over is not asked about again",
    ),
    Misreading(
        "a list that asks about nothing is answered",
        ("if document.head_list.listed == 0:", "if False:"),
        ("const asked = document.listed > 0 && epoch", "const asked = epoch"),
        "conversations: a list that asks about nothing",
    ),
    Misreading(
        "a list that was exchanged is answered",
        ("if document.id != scheduled.subject:", "if False:"),
        ("require(id === subject, 'the list must be the one first shown')", ""),
        "conversations: a list that was exchanged",
    ),
    Misreading(
        "the contributor is drawn again for each attempt",
        (
            "headers, pending.body.encode())",
            "headers, __import__('re').sub('(?<=butor\":\")[0-9a-f]{32}', "
            "f'{context.dice.below(1 << 128):032x}', pending.body).encode())",
        ),
        (
            "{ method: 'POST', headers, body })",
            "{ method: 'POST', headers, body: body.replace(/(?<=butor\":\")[0-9a-f]{32}/, "
            "() => this.#dice.below(1n << 128n).toString(16).padStart(32, '0')) })",
        ),
        "conversations: the same bytes after a restart whatever would be drawn",
    ),
    Misreading(
        "202 settles it although a verdict says retry",
        (
            "if EntryStatus.RETRY in statuses:",
            "if EntryStatus.RETRY in statuses and response.status != 202:",
        ),
        (
            "if (verdicts.some((verdict) => verdict.status === 'retry')) return null",
            "if (status !== 202 && verdicts.some((verdict) => verdict.status === 'retry')) return null",
        ),
        "conversations: the same bytes again until they are taken",
    ),
    Misreading(
        "one refusal settles it although another entry was accepted",
        ("if EntryStatus.ACCEPTED in statuses:", "if statuses == {EntryStatus.ACCEPTED}:"),
        (
            "if (verdicts.some((verdict) => verdict.status === 'accepted')) return 'sent'",
            "if (verdicts.every((verdict) => verdict.status === 'accepted')) return 'sent'",
        ),
        "conversations: settled by 202 with one accepted and one refused",
    ),
    Misreading(
        "a hotel's login page refuses for good",
        (
            "if response.status in _FINAL and problem else None",
            "if response.status in _FINAL else None",
        ),
        ("return problem && FINAL.includes(status)", "return FINAL.includes(status)"),
        "conversations: the same bytes again until they are taken",
    ),
    Misreading(
        "there is no last attempt at the deadline",
        (
            "if context.now_s() >= pending.until_s:",
            "if context.now_s() >= min(pending.until_s, _last_attempt_at_s(context)):",
        ),
        (
            "if (this.#now() >= until_s) return settled",
            "if (this.#now() >= Math.min(until_s, (loaded.state.budget_entries.at(-1)?.at_s ?? 0) + this.#limits.maxWaitS)) return settled",
        ),
        "conversations: the last attempt at the deadline may be accepted",
    ),
    Misreading(
        "`Retry-After` is not obeyed",
        (
            "return now_s + max(pause_s, min(_retry_after_s(response), 3_600))",
            "return now_s + pause_s",
        ),
        ("/^\\d{1,9}$/.test(asked) ? Math.min(+asked, 3600) : 0", "0"),
        "conversations: what retry after may say",
    ),
    Misreading(
        "`Retry-After` silences a device for as long as it says",
        ("min(_retry_after_s(response), 3_600)", "_retry_after_s(response)"),
        ("Math.min(+asked, 3600) : 0", "+asked : 0"),
        "conversations: what retry after may say",
    ),
    Misreading(
        "pauses do not grow",
        ("self._failures += 1", "pass"),
        ("this.#failures++, 20", "this.#failures, 20"),
        "conversations: a server that is away has a short pause again after a restart",
    ),
    Misreading(
        "a call during the pause asks the server",
        ("if pause and not at_once and pause.from_s", "if False and pause and pause.from_s"),
        ("if (pause && !atOnce && pause.fromS", "if (false && pause.fromS"),
        "conversations: a report from the first look to accepted",
    ),
    Misreading(
        "404 for a list's id means that nothing was published",
        (
            "if response is None or response.status != 200:\n        return context.try_later(scheduled.epoch, response)",
            "if response is not None and response.status == 404:\n        return context.nothing_new(None, '')\n    if response is None or response.status != 200:\n        return context.try_later(scheduled.epoch, response)",
        ),
        ("if (answer?.status === 404 && epoch === null) {", "if (answer?.status === 404) {"),
        "conversations: a list that is not found by its id",
    ),
    # 6. Conversations: opting in.
    Misreading(
        "opting in drops repeats before it puts records in order",
        (
            "drawn = list(dict.fromkeys(shuffled(records, context.dice)))",
            "drawn = shuffled(list(dict.fromkeys(records)), context.dice)",
        ),
        (
            "const drawn = shuffled(held, this.#dice)",
            "const drawn = shuffled([...new Map(held.map((r) => [JSON.stringify(r), r])).values()], this.#dice)",
        ),
        "conversations: opting in late in the window",
    ),
    Misreading(
        "opting in after the window covers up to now",
        (
            "min(window.window_end_s, max(window.window_start_s, now_s) + 1),",
            "max(window.window_start_s, now_s) + 1,",
        ),
        (
            "window_end_s: randomizer ? window_end_s : Math.min(window_end_s, soonS),",
            "window_end_s: randomizer ? window_end_s : soonS,",
        ),
        "conversations: opting in after the window covers only the window",
    ),
    Misreading(
        "opting in covers the whole window",
        (
            "min(window.window_end_s, max(window.window_start_s, now_s) + 1),",
            "window.window_end_s,",
        ),
        (
            "window_end_s: randomizer ? window_end_s : Math.min(window_end_s, soonS),",
            "window_end_s,",
        ),
        "conversations: opting in covers up to now",
    ),
    Misreading(
        "opting in forgets the whole window",
        (
            "forget_before_s = max(state.forget_before_s, min(scheduled.window_end_s, now_s + 1))",
            "forget_before_s = max(state.forget_before_s, scheduled.window_end_s)",
        ),
        (
            "{ ...entry, submission }, pending, Math.min(window_end_s, nowS + 1))",
            "{ ...entry, submission }, pending, window_end_s)",
        ),
        "conversations: records sent by opting in are forgotten and later ones stay",
    ),
    Misreading(
        "who opts in and has no record sends no entry",
        (
            "for slot, (query, url) in enumerate(records or [(None, None)])",
            "for slot, (query, url) in enumerate(records)",
        ),
        ("if (!chosen.length) chosen.push([null, null])", ""),
        "conversations: opting in without searches says so",
    ),
    Misreading(
        "what waits is sent although consent was withdrawn",
        (
            "if state.pending and state.pending.mode is Mode.OPT_IN and mode is not Mode.OPT_IN:",
            "if False:",
        ),
        (
            "const withdrawn = state.pending?.mode === 'opt-in' && mode === 'report'",
            "const withdrawn = false",
        ),
        "conversations: consent that was withdrawn",
    ),
    Misreading(
        "forgetting keeps opt-in records that wait",
        ("if state.pending and state.pending.mode is Mode.OPT_IN:\n", "if False:\n"),
        (
            "pending?.mode === 'opt-in' ? dropped(kept, 'dropped', null) : kept",
            "kept",
        ),
        "conversations: forgetting drops what was to be sent",
    ),
    Misreading(
        "another cohort's epoch is a refusal in opt-in mode",
        (
            "return ResultCode.NOTHING_NEW if other_cohort else ResultCode.REFUSED_BY_SERVER",
            "return ResultCode.REFUSED_BY_SERVER",
        ),
        ("return turn ? 'nothing new' : 'refused by server'", "return 'refused by server'"),
        "conversations: opting in by cohort",
    ),
    Misreading(
        "opting in acts in the last half of the window",
        ("_LAST_PART = 4", "_LAST_PART = 2"),
        (
            "const lateS = window_end_s - Math.floor(lengthS / 4)",
            "const lateS = window_end_s - Math.floor(lengthS / 2)",
        ),
        "conversations: the last quarter of a window is rounded down",
    ),
    Misreading(
        "the last quarter is rounded up",
        ("// _LAST_PART", "// -_LAST_PART * -1"),
        (
            "const lateS = window_end_s - Math.floor(lengthS / 4)",
            "const lateS = window_end_s - Math.ceil(lengthS / 4)",
        ),
        "conversations: the last quarter of a window is rounded down",
    ),
    Misreading(
        "an epoch that begins within the clock skew is not collecting",
        (
            "epoch.window_start_s <= now_s + limits.max_clock_skew_s and",
            "epoch.window_start_s <= now_s and",
        ),
        ("window_start_s <= nowS + limits.maxClockSkewS && nowS", "window_start_s <= nowS && nowS"),
        "conversations: opting in while clocks are apart",
    ),
    Misreading(
        "a time is drawn weeks ahead in a long window",
        ("if now_s < late_s and soon_s < epoch.window_end_s and not at_once:", "if False:"),
        ("if (nowS < lateS && soonS < window_end_s && !atOnce) {", "if (false) {"),
        "conversations: opting in for a long window waits until it is near",
    ),
    # What was sent, for a person to read.
    Misreading(
        "the text of opt-in records is kept when they were sent",
        (
            'Submission("", 0, 0, None, len(chosen))',
            'Submission("", 0, 0, (tuple((0, *each) for each in chosen),), len(chosen))',
        ),
        (
            "answers: null,\n      searches: drawn.length",
            "answers: [chosen.map((each) => [0, ...each])],\n      searches: drawn.length",
        ),
        "sent: of opt in records their number only",
    ),
    Misreading(
        "forgetting leaves the answers that were sent",
        ("kept = without_answers(state)", "kept = state"),
        (
            "const kept = { budget_entries: budget_entries.map(withoutAnswers) }",
            "const kept = { budget_entries }",
        ),
        "sent: forgetting removes the answers",
    ),
    Misreading(
        "the cells of a query without its URL are shown as anything",
        (
            "tuple((number, *cells.cell(number)) for number in answer)",
            "tuple(\n        (number, *(cells.cell(number) if number < len(cells.records) else (None, None)))\n        for number in answer\n    )",
        ),
        ("queries[cell - listed] ?? null", "null"),
        "sent: an answer by two-stage",
    ),
    # 7. Search.
    Misreading(
        "ties are ordered as UTF-16",
        ("getattr(row, by)))", 'getattr(row, by).encode("utf-16-be")))'),
        ("byCodePoint(text(a), text(b)))", "(text(a) < text(b) ? -1 : 1))"),
        "search: publication 0",
    ),
    Misreading(
        "numbers of any size are shown",
        ("x is not None and abs(x) < 1e300 for x", "x is not None and abs(x) < float('inf') for x"),
        ("Math.abs(x) < 1e300 && typeof x", "Math.abs(x) < Infinity && typeof x"),
        "search: refused, a probability beyond bounds",
    ),
    Misreading(
        "a disputed row shows the filtered estimate",
        (
            'if read == "filtered" and not row.disputed and over_time',
            'if read == "filtered" and over_time',
        ),
        ("filtered && known && !disputed ?", "filtered && known ?"),
        "search: publication 5",
    ),
    Misreading(
        "the rows of a star are shown",
        (
            "if numbers and isinstance(cell.query, str) and isinstance(cell.url, str):",
            "if numbers:",
        ),
        (
            "if (!found || typeof row.query !== 'string' || typeof row.url !== 'string') continue",
            "if (!found) continue",
        ),
        "search: publication 0",
    ),
    Misreading(
        "a blank at the end of a prefix is dropped",
        ('start = _normalised(prefix + ".")[:-1]', "start = _normalised(prefix)"),
        ("normaliseQuery(prefix + '.')?.slice(0, -1)", "normaliseQuery(prefix) ?? ''"),
        "search: publication 0",
    ),
)

#: What the vectors cannot catch in a client, and why.
UNSEEN = {
    "raw records may take any space": "each client counts the bytes of its own storage; "
    "tests/localclient/test_disk.py and tests/webclient/device.test.mjs fill it",
    "the generator is not the operating system's": "the vectors hand in the random numbers; "
    "tests/statistical and tests/webclient/chance.test.mjs look at real ones",
    "entry and bytes are not durable before they are sent": "only a loss of power shows it; "
    "tests/localclient/test_crashes.py cuts it at every step of the disk",
    "cookies, a cache or redirects name the device": "a vector's request has no connection; "
    "tests/localclient/test_silence.py and tests/webclient/device.test.mjs look at real ones",
    "a contributor is used for two head lists": "the dice of a conversation repeat themselves; "
    "`reports.json` shows that one is drawn for each report",
}
