"""``matches``, ``find`` and ``findAll`` of CEL's regular expressions, in time that the text and the pattern bound (TS10).

RE2 tells whether a text matches, in time by the product of both, which is counted beforehand. How far it has to look for
where nobody can say beforehand. So for that a pattern becomes a small program whose threads walk
the text together (https://swtch.com/~rsc/regexp/regexp2.html), so that nothing is ever tried twice; of threads that
arrive at the same place the one that Go prefers stays. What Go's syntax has beyond Python's is refused, not guessed.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from functools import lru_cache
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, Final

import re2

from kube.kinds.patterns import MAX_PATTERN
from kube.requests.decoding import TooHeavy

LIGHT: Final = 1_000_000
"""What the searches of one expression may cost where others wait, in units of 10 ns."""

MOST: Final = 100_000_000
"""The same anywhere."""

_STEP: Final = 100
"""For a step of a thread."""

_CALL: Final = 200
_INSTRUCTION: Final = 1.3
"""For each instruction of RE2's program, for each byte of a text: where its automaton has more states than it may keep."""

_FEW: Final = 12
"""Instructions that have so few states that a byte costs one unit."""

_COMPILED: Final = 250
"""For each letter of a pattern that is compiled."""

_CLASSES: Final = 20
_REPEATED: Final = 250_000
"""By how much more where it names classes of Unicode, each some hundred ranges; and what those cost that are repeated."""

_MEMORY: Final = 1 << 20
"""Bytes that RE2 may take for a pattern, with the states that it has met in texts."""

_UNICODE: Final = re.compile(r"\\[pP]")

_PROGRAM_MAX: Final = 2_000
_REFUSED: Final = 500_000
"""For a pattern that is found to be larger."""
_REPEATS_MAX: Final = 1_000
"""Go's own bound."""
_FOUND_MAX: Final = 10_000
_UNKNOWN: Final = re.compile(r"\\[pPCQEz]|\[\[?:|\(\?[a-zA-Z]*U|\\x\{")
"""What Go's syntax has and Python's has not, or has with another meaning."""


def _is_word(letter: str) -> bool:
    return letter == "_" or (letter.isascii() and letter.isalnum())


_CATEGORIES: Final[dict[Any, Callable[[str], bool]]] = {
    codes.CATEGORY_DIGIT: lambda c: "0" <= c <= "9",
    codes.CATEGORY_NOT_DIGIT: lambda c: not "0" <= c <= "9",
    codes.CATEGORY_SPACE: lambda c: c in "\t\n\f\r ",
    codes.CATEGORY_NOT_SPACE: lambda c: c not in "\t\n\f\r ",
    codes.CATEGORY_WORD: _is_word,
    codes.CATEGORY_NOT_WORD: lambda c: not _is_word(c),
}

_spent: ContextVar[int] = ContextVar("spent", default=0)


class Light:
    """Expressions are evaluated where others wait; ``exceeded`` says that a search was given up for that."""

    __slots__ = ("exceeded",)

    def __init__(self) -> None:
        self.exceeded = False


light: ContextVar[Light | None] = ContextVar("light", default=None)
"""Set where only plain expressions are evaluated, and searches may cost no more than ``LIGHT``."""

Step = tuple[Any, ...]
"""One instruction: ``("char", test)``, ``("split", first, second)``, ``("jump", to)``, ``("at", test)``, ``("end",)``."""


def reset_budget() -> None:
    """Let the searches that follow cost so much together, and no more."""
    _spent.set(0)


def require_beside() -> None:
    """Raise ``TooHeavy`` where others wait."""
    if light.get() is not None:
        raise TooHeavy


def require_light() -> None:
    """Raise ``TooHeavy`` if a search was given up because others wait: what the evaluator made of that means nothing."""
    where = light.get()
    if where is not None and where.exceeded:
        raise TooHeavy


def _left() -> int:
    return (LIGHT if light.get() is not None else MOST) - _spent.get()


def _charge(cost: float) -> None:
    """Raise ``ValueError`` for what would cost more than is left."""
    spent = _spent.get() + int(cost)
    # Also where it is too much: whatever is asked for after that is refused at once.
    _spent.set(spent)
    where = light.get()
    if where is not None and spent > LIGHT:
        where.exceeded = True
        raise ValueError("the text is too long to be searched where others wait")
    if spent > MOST:
        raise ValueError("the text is too long to be searched")


def matches(text: str, pattern: str) -> bool:
    """Whether the pattern is found anywhere in the text. Raises ``ValueError`` for what cannot be searched for."""
    data, compiled = text.encode(), _compiled(pattern)
    size = compiled.programsize
    _charge(_CALL + len(data) * (_INSTRUCTION * size if size > _FEW else 1))
    return compiled.search(data) is not None


def is_pattern(pattern: str) -> bool:
    """Whether the pattern can be compiled within bounds; a long one may take some milliseconds."""
    try:
        _compile_by_re2(pattern)
    except ValueError:
        return False
    return True


@lru_cache(maxsize=64)
def _compiled(pattern: str) -> Any:
    """Charged where it was not compiled lately."""
    if len(pattern) <= MAX_PATTERN:
        cost = len(pattern) * _COMPILED
        _charge(cost * _CLASSES + _REPEATED if _UNICODE.search(pattern) else cost)
    return _compile_by_re2(pattern)


def _compile_by_re2(pattern: str) -> Any:
    if len(pattern) > MAX_PATTERN:
        raise ValueError(f"the pattern is longer than {MAX_PATTERN} characters")
    options = re2.Options()
    options.max_mem, options.log_errors, options.never_capture = _MEMORY, False, True
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        words = error.args[0] if error.args else ""
        raise ValueError(f"error parsing regexp: {words.decode() if isinstance(words, bytes) else words}") from None
    finally:
        re2.purge()  # it would keep 128 by itself


def find(text: str, pattern: str) -> str:
    """The first match, or an empty text. Raises ``ValueError`` for what cannot be searched for."""
    return next(_matches(text, pattern), "")


def find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    """The matches one after the other, at most ``limit`` where it is not negative."""
    found: list[str] = []
    for match in _matches(text, pattern) if limit else ():
        found.append(match)
        if len(found) == limit:
            break
        if len(found) > _FOUND_MAX:
            raise ValueError("the text has too many matches")
    return found


def _matches(text: str, pattern: str) -> Iterator[str]:
    program = _program(pattern)
    start, last = 0, -1
    while start <= len(text):
        place = _run(program, text, start)
        if place is None:
            return
        begun, ended = place
        # An empty match right after another one is none.
        if ended > begun or begun != last:
            yield text[begun:ended]
            last = ended
        start = ended if ended > begun else ended + 1


def _run(program: Sequence[Step], text: str, start: int) -> tuple[int, int] | None:
    """Where the leftmost match at or after ``start`` begins and ends, of those beginning there the preferred one."""
    # 1. A thread is an instruction and where its match began; the list is in order of preference, and every thread
    #    has read the same letters. So the text is walked through once, whatever the pattern repeats.
    # 2. ``seen`` lets one thread through an instruction at each place: the first that comes is the preferred one, and
    #    another one could only do the same. A place costs no more steps than the program is long.
    # 3. A new thread begins at every place until something has matched, behind those that began before: leftmost first.
    # 4. Who reaches the end beats all behind it in the list; who stands before it may still find what Go prefers.
    # 5. All searches of an expression share one budget, so that many small ones cost no more than a large one.
    threads: list[tuple[int, int]] = []
    best: tuple[int, int] | None = None
    steps, most = 0, _left() // _STEP
    for place in range(start, len(text) + 1):
        seen: set[int] = set()
        waiting: list[tuple[int, int]] = []
        for at, begun in threads:
            _follow(program, at, begun, text, place, seen, waiting)
        if best is None:
            _follow(program, 0, place, text, place, seen, waiting)
        steps += len(seen) + 1
        if steps > most:
            break
        threads = []
        for at, begun in waiting:
            if program[at][0] == "end":
                # Whoever is less preferred is out.
                best = (begun, place)
                break
            if place < len(text) and program[at][1](text[place]):
                threads.append((at + 1, begun))
        if not threads and best is not None:
            break
    _charge(steps * _STEP)
    return best


def _follow(
    program: Sequence[Step], at: int, begun: int, text: str, place: int, seen: set[int], waiting: list[tuple[int, int]]
) -> None:
    """Where a thread can stand without reading on, the preferred places first."""
    # A stack and no recursion, for patterns are the tenants': the branch that is pushed last, the preferred one, is gone
    # through with all that follows it before the other is looked at.
    stack = [at]
    while stack:
        at = stack.pop()
        if at in seen:
            continue
        seen.add(at)
        step = program[at]
        if step[0] == "jump":
            stack.append(step[1])
        elif step[0] == "split":
            stack += [step[2], step[1]]
        elif step[0] == "at":
            if step[1](text, place):
                stack.append(at + 1)
        else:
            waiting.append((at, begun))


def _program(pattern: str) -> Sequence[Step]:
    if len(pattern) > MAX_PATTERN:
        raise ValueError(f"the pattern is longer than {MAX_PATTERN} characters")
    program, problem = _made(pattern)
    if problem:
        raise ValueError(problem)
    return program


@lru_cache(maxsize=32)  # Of up to half a megabyte each.
def _made(pattern: str) -> tuple[Sequence[Step], str]:
    """The program, and what is wrong with the pattern; charged where it was not compiled lately."""
    _charge(len(pattern) * _COMPILED)
    if _UNKNOWN.search(pattern):
        return (), "the pattern has syntax that this server does not search for"
    program = _Program()
    try:
        tree = parser.parse(pattern, re.ASCII)
        _compile(tree, tree.state.flags, program)
    except (re.error, RecursionError, OverflowError):
        return (), "the pattern has syntax that this server does not search for"
    except ValueError as error:
        _charge(_REFUSED)
        return (), str(error)
    _charge(len(program) * _STEP)
    return [*program, ("end",)], ""


class _Program(list[Step]):
    """With what is known of the classes of letters in it: one that is repeated is made once."""

    def __init__(self) -> None:
        self.judges: dict[tuple[int, int], Callable[[str], bool]] = {}


def _compile(tree: Any, flags: int, program: _Program) -> None:
    for code, argument in tree:
        if len(program) > _PROGRAM_MAX:
            raise ValueError("the pattern is too large to be searched for")
        if code in (codes.MAX_REPEAT, codes.MIN_REPEAT):
            least, most, inside = argument
            _compile_repeat(least, most, inside, program, flags=flags, greedy=code is codes.MAX_REPEAT)
        elif code is codes.BRANCH:
            _compile_branches(argument[1], flags, program)
        elif code is codes.SUBPATTERN:
            _, added, dropped, inside = argument
            _compile(inside, (flags | added) & ~dropped, program)
        elif code is codes.AT:
            program.append(("at", _position(argument, flags)))
        else:
            # The tree is there until all is made, so that no other part of it has the same place.
            judge = program.judges.get((id(argument), flags)) if code is codes.IN else None
            if judge is None:
                judge = _character(code, argument, flags)
                if code is codes.IN:
                    program.judges[id(argument), flags] = judge
            program.append(("char", judge))


def _compile_repeat(least: int, most: Any, inside: Any, program: _Program, *, flags: int, greedy: bool) -> None:
    if least > _REPEATS_MAX or (most is not codes.MAXREPEAT and most > _REPEATS_MAX):
        raise ValueError("the pattern is too large to be searched for")
    # What must be there is written out; the bound on the program's length, checked at every part, is the bound on it.
    for _ in range(least):
        before = len(program)
        _compile(inside, flags, program)
        if len(program) == before:
            # Nothing, however often, is nothing.
            return
    if most is codes.MAXREPEAT:
        # A loop that reads nothing on its way round comes back to an instruction that has been seen, and ends there.
        head = len(program)
        program.append(())
        _compile(inside, flags, program)
        program.append(("jump", head))
        program[head] = _split(head + 1, len(program), greedy=greedy)
        return
    # What may be there: each copy is preceded by a way out to behind the last one, which is known only afterwards.
    splits = []
    for _ in range(int(most) - least):
        splits.append(len(program))
        program.append(())
        _compile(inside, flags, program)
        if len(program) > _PROGRAM_MAX:
            raise ValueError("the pattern is too large to be searched for")
    for at in splits:
        program[at] = _split(at + 1, len(program), greedy=greedy)


def _split(inside: int, after: int, *, greedy: bool) -> Step:
    return ("split", inside, after) if greedy else ("split", after, inside)


def _compile_branches(branches: Sequence[Any], flags: int, program: _Program) -> None:
    ends = []
    for branch in branches[:-1]:
        head = len(program)
        program.append(())
        _compile(branch, flags, program)
        ends.append(len(program))
        program.append(())
        program[head] = ("split", head + 1, len(program))
    _compile(branches[-1], flags, program)
    for at in ends:
        program[at] = ("jump", len(program))


def _position(code: Any, flags: int) -> Callable[[str, int], bool]:
    if code is codes.AT_BEGINNING and flags & re.MULTILINE:
        return lambda text, place: place == 0 or text[place - 1] == "\n"
    if code in (codes.AT_BEGINNING, codes.AT_BEGINNING_STRING):
        return lambda _, place: place == 0
    if code is codes.AT_END and flags & re.MULTILINE:
        return lambda text, place: place == len(text) or text[place] == "\n"
    if code is codes.AT_END:
        return lambda text, place: place == len(text)
    if code is codes.AT_BOUNDARY:
        return _at_boundary
    if code is codes.AT_NON_BOUNDARY:
        return lambda text, place: not _at_boundary(text, place)
    raise ValueError("the pattern has syntax that this server does not search for")


def _at_boundary(text: str, place: int) -> bool:
    before = place > 0 and _is_word(text[place - 1])
    return before != (place < len(text) and _is_word(text[place]))


def _character(code: Any, argument: Any, flags: int) -> Callable[[str], bool]:
    if code is codes.ANY:
        return (lambda _: True) if flags & re.DOTALL else (lambda c: c != "\n")
    folds = bool(flags & re.IGNORECASE)
    if code in (codes.LITERAL, codes.NOT_LITERAL):
        wanted = {argument} if not folds else set(map(ord, _cases(chr(argument))))
        return (lambda c: ord(c) in wanted) if code is codes.LITERAL else (lambda c: ord(c) not in wanted)
    if code is codes.IN:
        return _one_of(argument, folds)
    raise ValueError("the pattern has syntax that this server does not search for")


def _one_of(parts: Sequence[tuple[Any, Any]], folds: bool) -> Callable[[str], bool]:
    """However many letters and ranges there are, one letter is judged in a moment."""
    negated = bool(parts) and parts[0][0] is codes.NEGATE
    letters: set[str] = set()
    ranges: list[tuple[int, int]] = []
    categories: set[Any] = set()
    for code, argument in parts[negated:]:
        if code is codes.LITERAL:
            letters.add(chr(argument))
        elif code is codes.RANGE:
            ranges.append(argument)
        elif code is codes.CATEGORY:
            categories.add(argument)
        else:
            raise ValueError("the pattern has syntax that this server does not search for")
    lows, highs = _without_overlaps(ranges)
    tests = tuple(_CATEGORIES[category] for category in categories)

    def is_in(letter: str) -> bool:
        at = bisect_right(lows, ord(letter)) - 1
        return letter in letters or (at >= 0 and ord(letter) <= highs[at]) or any(test(letter) for test in tests)

    def judged(letter: str) -> bool:
        return any(map(is_in, _cases(letter) if folds else (letter,))) is not negated

    return judged


def _without_overlaps(ranges: Sequence[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """Where the ranges begin and end that hold the same numbers, in order."""
    lows: list[int] = []
    highs: list[int] = []
    for low, high in sorted(ranges):
        if highs and low <= highs[-1]:
            highs[-1] = max(highs[-1], high)
        else:
            lows.append(low)
            highs.append(high)
    return lows, highs


def _cases(letter: str) -> tuple[str, ...]:
    """A letter in both cases, where they are single letters."""
    return tuple(each for each in {letter, letter.lower(), letter.upper()} if len(each) == 1)
