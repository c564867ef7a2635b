"""A shell script as simple commands in order: enough of the grammar to misread nothing.

Compound commands are not built into a tree. What matters for a launch config is kept: which
commands stand in a branch or loop, and which belong to a function.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from specdash.launch.shell_syntax import Assignment, Literal, RawWord, Script, Simple
from specdash.launch.shell_words import (
    META,
    ShellTextError,
    arithmetic_end,
    line_break,
    paren_end,
    read_word,
)

# With an index it is another variable: one element says nothing about the whole array.
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*(?:\[[^]\s]*\])?)(\+?)=")
_FUNCTION = re.compile(r"[ \t]*\([ \t]*\)")
_REDIRECT = re.compile(r"[0-9]*(?:&>>?|<<<|<<-?|<>|>>|>\||[<>]&?)|\{[A-Za-z_]\w*\}[<>]")
_OPENERS = {
    "if": "if",
    "while": "loop",
    "until": "loop",
    "for": "loop",
    "select": "loop",
    "case": "case",
    "{": "{",
}
_CLOSERS = {"fi": "if", "done": "loop", "esac": "case", "}": "{"}
_CONTINUERS = frozenset({"then", "else", "elif", "do", "!", "time", "coproc"})
_DEEPEST = 250
"""Blocks in blocks that a script written by hand does not have."""
_DECLARERS = frozenset({"export", "declare", "local", "readonly", "typeset", "env", "alias"})


@dataclass(slots=True)
class _Block:
    kind: str
    function: str = ""


def parse_script(text: str) -> Script:
    """Parse a script.

    Raises ShellTextError for what no shell would accept and RecursionError for what is nested
    beyond reason.
    """
    return _Parser(text).run()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 1 if text.startswith("\ufeff") else 0
        self._script = Script()
        self._blocks: list[_Block] = []
        self._command = Simple()
        self._heredocs: list[tuple[str, bool]] = []
        self._after_and = False
        self._pending_function = ""

    def run(self) -> Script:
        while self._at < len(self._text):
            self._step()
        self._finish()
        return self._script

    # -- one thing at a time -------------------------------------------------------------

    def _step(self) -> None:
        text, at = self._text, self._at
        char = text[at]
        broken = line_break(text, at)
        if broken:
            self._at += broken
            self._finish()
            self._after_and = False
            self._read_heredocs()
        elif char in " \t\r":
            self._at += 1
        elif char == "\\" and line_break(text, at + 1):
            self._at += 1 + line_break(text, at + 1)
        elif char == "#":
            end = text.find("\n", at)
            self._at = len(text) if end < 0 else end
        elif char in ";&|" and _REDIRECT.match(text, at) is None:
            self._operator()
        elif char == "(":
            self._open_paren()
        elif char == ")":
            self._at += 1
            self._finish()
            self._close("(")
        elif (redirect := _REDIRECT.match(text, at)) is not None:
            self._redirect(redirect)
        else:
            self._word()

    def _operator(self) -> None:
        text = self._text
        pair = text[self._at : self._at + 2]
        if pair in ("&&", "||"):
            self._at += 2
            self._finish()
            self._after_and = True
            return
        self._finish()
        if text[self._at] != "|":
            self._after_and = False
        case = bool(self._blocks) and self._blocks[-1].kind == "case"
        for token in (";;&", ";;", ";&"):
            if case and text.startswith(token, self._at):
                self._at += len(token)
                self._case_pattern()
                return
        self._at += 1

    def _open_paren(self) -> None:
        if self._text.startswith("((", self._at) and not self._command.words:
            end = arithmetic_end(self._text, self._at)
            if end:
                self._at = end
                return
        self._at += 1
        self._finish()
        self._open("(")

    def _redirect(self, match: re.Match[str]) -> None:
        operator = match.group().lstrip("0123456789")
        self._at = match.end()
        if self._text.startswith("(", self._at) and operator in ("<", ">"):
            self._at = paren_end(self._text, self._at)  # process substitution
            return
        self._skip_blanks()
        if self._at >= len(self._text) or self._text[self._at] in META:
            if self._text.startswith(("<(", ">("), self._at):
                self._at = paren_end(self._text, self._at + 1)
            return
        word = read_word(self._text, self._at)
        self._at = word.end
        if operator in ("<<", "<<-"):
            delimiter = "".join(p.text for p in word.parts if isinstance(p, Literal))
            self._heredocs.append((delimiter, operator == "<<-"))

    def _read_heredocs(self) -> None:
        for delimiter, tabs in self._heredocs:
            start = self._at
            while self._at < len(self._text):
                end = self._text.find("\n", self._at)
                end = len(self._text) if end < 0 else end
                line = self._text[self._at : end].rstrip("\r")
                if (line.lstrip("\t") if tabs else line) == delimiter:
                    self._script.heredocs.append((start, self._at))
                    self._at = min(end + 1, len(self._text))
                    break
                self._at = min(end + 1, len(self._text))
            else:
                self._script.heredocs.append((start, self._at))
        self._heredocs.clear()

    # -- words ---------------------------------------------------------------------------

    def _word(self) -> None:
        text = self._text
        start = self._at
        command = self._command
        assignment = self._assignment()
        if assignment is not None:
            if not command.words:
                self._begin(start)
                command.assignments.append(assignment)
            else:
                command.words.append(assignment)
            command.end = self._at
            return
        word = read_word(text, start)
        if word.end == start:
            # A lone character that starts nothing here, such as a stray brace.
            self._at += 1
            return
        self._at = word.end
        if not command.words and not command.assignments and self._reserved(word):
            return
        self._begin(start)
        command.words.append(word)
        command.end = self._at

    def _begin(self, start: int) -> None:
        command = self._command
        if not command.words and not command.assignments:
            command.start = start
            command.conditional = self._after_and or any(
                block.kind in ("if", "loop", "case") for block in self._own_blocks()
            )
            command.function = self._function()

    def _reserved(self, word: RawWord) -> bool:
        plain = word.plain
        if plain is None:
            return False
        if plain == "function":
            self._skip_blanks()
            name = read_word(self._text, self._at)
            self._at = name.end
            match = _FUNCTION.match(self._text, self._at)
            if match is not None:
                self._at = match.end()
            self._pending_function = name.plain or ""
            return True
        match = _FUNCTION.match(self._text, word.end)
        if match is not None and plain not in _CONTINUERS:
            self._at = match.end()
            self._pending_function = plain
            return True
        if plain in _CONTINUERS:
            return True
        if plain in _CLOSERS:
            self._close(_CLOSERS[plain])
            return True
        if plain in _OPENERS:
            kind = _OPENERS[plain]
            self._open(kind)
            if plain in ("for", "select"):
                self._loop_head()
            elif plain == "case":
                self._case_head()
            return True
        return False

    def _loop_head(self) -> None:
        """``for x in a b``: the words are data, not a command."""
        while self._at < len(self._text):
            if self._text[self._at] == ";" or line_break(self._text, self._at):
                return
            if self._text.startswith("((", self._at):
                self._at = arithmetic_end(self._text, self._at) or self._at + 2
                continue
            word = read_word(self._text, self._at)
            self._at = max(word.end, self._at + 1)
            if word.plain == "do":
                return

    def _case_head(self) -> None:
        self._skip_blanks()
        self._at = read_word(self._text, self._at).end
        self._skip_space()
        word = read_word(self._text, self._at)
        if word.plain == "in":
            self._at = word.end
        self._case_pattern()

    def _case_pattern(self) -> None:
        """Step over ``pattern )``; stop before ``esac``."""
        self._skip_space()
        word = read_word(self._text, self._at)
        if word.plain == "esac":
            return
        if self._text.startswith("(", self._at):
            self._at += 1
        while self._at < len(self._text) and self._text[self._at] != ")":
            word = read_word(self._text, self._at)
            self._at = max(word.end, self._at + 1) if word.end == self._at else word.end
        self._at = min(self._at + 1, len(self._text))

    def _assignment(self) -> Assignment | None:
        text, start = self._text, self._at
        match = _ASSIGNMENT.match(text, start)
        if match is None or self._is_argument():
            return None
        name, plus = match.group(1), match.group(2)
        here = match.end()
        if text.startswith("(", here):
            words, end = self._array(here)
            self._at = end
            return Assignment(name, bool(plus), RawWord((), here, end), tuple(words), start, end)
        value = read_word(text, here)
        self._at = value.end
        return Assignment(name, bool(plus), value, None, start, value.end)

    def _is_argument(self) -> bool:
        """Whether ``a=b`` here is an ordinary argument of the command."""
        words = self._command.words
        if not words:
            return False
        first = words[0]
        return not (isinstance(first, RawWord) and first.plain in _DECLARERS)

    def _array(self, at: int) -> tuple[list[RawWord], int]:
        text = self._text
        opened = at
        at += 1
        words: list[RawWord] = []
        while at < len(text):
            char = text[at]
            if char == ")":
                return words, at + 1
            if char in " \t\r\n":
                at += 1
            elif char == "\\" and line_break(text, at + 1):
                at += 1 + line_break(text, at + 1)
            elif char == "#":
                end = text.find("\n", at)
                at = len(text) if end < 0 else end
            else:
                word = read_word(text, at)
                words.append(word)
                at = max(word.end, at + 1)
        raise ShellTextError(opened, "a parenthesis")

    # -- blocks --------------------------------------------------------------------------

    def _own_blocks(self) -> list[_Block]:
        """The blocks inside the innermost function."""
        for number in range(len(self._blocks) - 1, -1, -1):
            if self._blocks[number].function:
                return self._blocks[number + 1 :]
        return self._blocks

    def _function(self) -> str:
        return next((b.function for b in reversed(self._blocks) if b.function), "")

    def _take_function(self) -> str:
        name, self._pending_function = self._pending_function, ""
        return name

    def _open(self, kind: str) -> None:
        if len(self._blocks) >= _DEEPEST:
            raise RecursionError("blocks in blocks")
        self._blocks.append(_Block(kind, self._take_function()))

    def _close(self, kind: str) -> None:
        for number in range(len(self._blocks) - 1, -1, -1):
            if self._blocks[number].kind == kind:
                del self._blocks[number:]
                return

    def _finish(self) -> None:
        command = self._command
        if command.words or command.assignments:
            if command.function:
                self._script.functions.setdefault(command.function, []).append(command)
            else:
                self._script.commands.append(command)
            self._command = Simple()

    def _skip_blanks(self) -> None:
        text = self._text
        while self._at < len(text):
            if text[self._at] in " \t":
                self._at += 1
            elif text[self._at] == "\\" and line_break(text, self._at + 1):
                self._at += 1 + line_break(text, self._at + 1)
            else:
                return

    def _skip_space(self) -> None:
        while True:
            self._skip_blanks()
            if self._at < len(self._text) and self._text[self._at] in "\r\n":
                self._at += 1
            elif self._text.startswith("#", self._at):
                end = self._text.find("\n", self._at)
                self._at = len(self._text) if end < 0 else end
            else:
                return
