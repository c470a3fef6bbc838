"""`bough completion`: a script by which bash, zsh or fish complete commands and options.

It is made from the parsers themselves, so that it says what they take. Rule: what is not a command, a verb, an
option or one of its choices is left to the shell, which completes files.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

import msgspec

from bough.cli.main import COMMANDS, load_command, make_parser
from bough.cli.output import Output

EXAMPLES = (
    "source <(bough completion bash)",
    "bough completion zsh > ~/.zfunc/_bough",
    "bough completion fish > ~/.config/fish/completions/bough.fish",
)


class Option(msgspec.Struct, frozen=True):
    """One option of a command."""

    names: tuple[str, ...]
    text: str
    takes_value: bool
    choices: tuple[str, ...] = ()


class Word(msgspec.Struct, frozen=True):
    """A command, or a verb of one."""

    name: str
    text: str
    options: tuple[Option, ...]
    verbs: tuple[Word, ...] = ()
    choices: tuple[str, ...] = ()  # of its first argument


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    parser.add_argument("shell", choices=tuple(_WRITERS), help="the shell that is to complete")


def run(args: argparse.Namespace, output: Output) -> int:
    """Print the script."""
    text = "\n".join(_WRITERS[args.shell](list(commands())))
    output.answer({"shell": args.shell, "script": text}, lambda: [text])
    return 0


# --- what there is --------------------------------------------------------------------------------------


def commands() -> Iterator[Word]:
    """All commands, as their parsers describe them."""
    for name, (_, summary) in COMMANDS.items():
        yield _word(name, summary, make_parser(name, load_command(name)))


def _word(name: str, summary: str, parser: argparse.ArgumentParser) -> Word:
    options: list[Option] = []
    verbs: list[Word] = []
    choices: tuple[str, ...] = ()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            texts = {choice.dest: choice.help or "" for choice in action._choices_actions}
            verbs = [_word(verb, texts.get(verb, ""), inner) for verb, inner in action.choices.items()]
        elif action.option_strings:
            if action.help != argparse.SUPPRESS or action.dest == "states":
                options.append(_option(action))
        elif action.choices is not None:
            choices = tuple(str(choice) for choice in action.choices)
    return Word(name, summary, tuple(options), tuple(verbs), choices)


def _option(action: argparse.Action) -> Option:
    text = "" if action.help in {None, argparse.SUPPRESS} else str(action.help)
    chosen = tuple(str(choice) for choice in action.choices) if action.choices is not None else ()
    return Option(
        tuple(action.option_strings), text % vars(action) if "%(" in text else text, action.nargs != 0, chosen
    )


# --- bash -----------------------------------------------------------------------------------------------


def _bash(words: list[Word]) -> Iterator[str]:
    yield "# completion of bough for bash: source <(bough completion bash)"
    yield "_bough() {"
    yield '    local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}" found=""'
    yield "    COMPREPLY=()"
    yield '    if [ "$COMP_CWORD" -eq 1 ]; then'
    yield f'        COMPREPLY=($(compgen -W "{_names(words)} --help --version" -- "$cur"))'
    yield "        return"
    yield "    fi"
    yield '    case "${COMP_WORDS[1]} ${COMP_WORDS[2]}" in'
    for word in words:
        for verb in word.verbs:
            yield from _bash_case(f'"{word.name} {verb.name}"', verb)
        yield from _bash_case(f'"{word.name} "*', word)
    yield f'        "help "*) found="{_names(words)}" ;;'
    yield "    esac"
    yield '    COMPREPLY=($(compgen -W "$found" -- "$cur"))'
    yield "}"
    yield "complete -o bashdefault -o default -F _bough bough"


def _bash_case(pattern: str, word: Word) -> Iterator[str]:
    options = " ".join(name for option in word.options for name in option.names)
    plain = _names(word.verbs) or " ".join(word.choices)
    yield f"        {pattern})"
    yield '            case "$prev" in'
    for option in word.options:
        if option.takes_value:
            yield f'                {"|".join(option.names)}) found="{" ".join(option.choices)}" ;;'
    yield f'                *) if [[ $cur == -* ]]; then found="{options}"; else found="{plain}"; fi ;;'
    yield "            esac ;;"


def _names(words: tuple[Word, ...] | list[Word]) -> str:
    return " ".join(word.name for word in words)


# --- zsh ------------------------------------------------------------------------------------------------


def _zsh(words: list[Word]) -> Iterator[str]:
    yield "#compdef bough"
    yield "# completion of bough for zsh: put it into a folder of $fpath as _bough"
    yield "_bough() {"
    yield "    if (( CURRENT == 2 )); then"
    yield from _zsh_describe("command", words, "        ")
    yield "        return"
    yield "    fi"
    yield "    case $words[2] in"
    for word in words:
        yield f"        {word.name})"
        if word.verbs:
            yield "            if (( CURRENT == 3 )); then"
            yield from _zsh_describe("verb", word.verbs, "                ")
            yield "                return"
            yield "            fi"
            yield "            case $words[3] in"
            for verb in word.verbs:
                yield f"                {verb.name}) {_zsh_arguments(verb)} ;;"
            yield "            esac ;;"
        else:
            yield f"            {_zsh_arguments(word)} ;;"
    yield "    esac"
    yield "}"
    yield '[ "$funcstack[1]" = _bough ] && _bough "$@" || compdef _bough bough'


def _zsh_describe(kind: str, words: tuple[Word, ...] | list[Word], indent: str) -> Iterator[str]:
    yield f"{indent}local -a found=("
    for word in words:
        yield f"{indent}    {_quoted(word.name + ':' + word.text)}"
    yield f"{indent})"
    yield f"{indent}_describe {kind} found"


def _zsh_arguments(word: Word) -> str:
    specs = []
    for option in word.options:
        text = option.text.replace("[", "(").replace("]", ")").replace(":", " -")
        value = f":value:({' '.join(option.choices)})" if option.choices else ":value:_files"
        specs += [_quoted(f"{name}[{text}]{value if option.takes_value else ''}") for name in option.names]
    specs.append(_quoted(f"*:argument:({' '.join(word.choices)})" if word.choices else "*:argument:_files"))
    return "_arguments " + " ".join(specs)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


# --- fish -----------------------------------------------------------------------------------------------


def _fish(words: list[Word]) -> Iterator[str]:
    yield "# completion of bough for fish: ~/.config/fish/completions/bough.fish"
    for word in words:
        yield f"complete -c bough -n __fish_use_subcommand -f -a {word.name} -d {_fish_quoted(word.text)}"
    for word in words:
        seen = f"__fish_seen_subcommand_from {word.name}"
        names = " ".join(verb.name for verb in word.verbs)
        for verb in word.verbs:
            new = f"{seen}; and not __fish_seen_subcommand_from {names}"
            yield f"complete -c bough -n '{new}' -f -a {verb.name} -d {_fish_quoted(verb.text)}"
            yield from _fish_options(verb, f"{seen}; and __fish_seen_subcommand_from {verb.name}")
        yield from _fish_options(word, seen)
        if word.choices:
            yield f"complete -c bough -n '{seen}' -f -a '{' '.join(word.choices)}'"


def _fish_options(word: Word, condition: str) -> Iterator[str]:
    for option in word.options:
        names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names)
        value = f" -x -a '{' '.join(option.choices)}'" if option.choices else " -r" if option.takes_value else ""
        yield f"complete -c bough -n '{condition}' {names}{value} -d {_fish_quoted(option.text)}"


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


_WRITERS: dict[str, Callable[[list[Word]], Iterator[str]]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
