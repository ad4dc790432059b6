"""Shell completion: a script for bash, zsh or fish with the commands, their options, and the words that options take.

A script has no need of Python: pressing Tab starts no process.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from string import Template
from typing import NamedTuple, cast

from vocable import __version__
from vocable.cli.command import Command, in_options
from vocable.cli.help import GLOBAL, choices, metavar
from vocable.cli.output import quoted
from vocable.cli.verbs import first_line
from vocable.cli.words import options_of
from vocable.core.storage import check_file, replacing
from vocable.encoding.hub import BUILT_IN, BUILT_IN_DENSE
from vocable.errors import ArgumentError
from vocable.training.recipe_files import RecipeList, recipes

SHELLS = ["bash", "zsh", "fish"]
FILE_METAVARS = {
    "MODEL",
    "PATH",
    "PLACE",
    "SCORES",
    "SOURCE",
    "VECTORS",
}  # values that may be files
NO_FILES = {"name", "query", "document", "ids"}  # words without an option that are no files
LOAD = {
    "bash": "a new shell loads it where the package bash-completion is installed; else add to ~/.bashrc: source {file}",
    "zsh": "add to ~/.zshrc: fpath=({folder} $fpath); autoload -Uz compinit; compinit",
    "fish": "a new shell loads it",
}


class Slot(NamedTuple):
    """An option, or the words of a command without one, and the values that may follow.

    `values` is None for a flag. `files` says whether a value may be a file or folder.
    """

    spellings: list[str]
    text: str
    values: list[str] | None
    files: bool


class Completed(NamedTuple):
    """A command with its options and the words without an option."""

    name: str
    text: str
    options: list[Slot]
    words: Slot


def install_completion(shell: str, commands: Mapping[str, Command]) -> str:
    """Write the script of a shell to the user's folder, and return which file it is and how a shell loads it."""
    shell = shell_of(shell)
    file = _place(shell)
    content = script(shell, commands).encode()
    is_there = file.is_file() and file.read_bytes() == content
    if not is_there:
        file.parent.mkdir(parents=True, exist_ok=True)
        with replacing(check_file(file)) as stream:
            stream.write(content)
    how = LOAD[shell].format(file=quoted(file), folder=quoted(file.parent))
    return f"{'already there' if is_there else 'written'}: {file}\n{how}"


def shell_of(name: str) -> str:
    """Return the name of a shell, by default the user's; raise `ArgumentError` for one without completion."""
    shell = name or Path(os.environ.get("SHELL", "")).name
    if shell not in SHELLS:
        raise ArgumentError(f"completion needs one of the shells {', '.join(SHELLS)}, not {shell!r}: name one")
    return shell


def _place(shell: str) -> Path:
    def folder(variable: str, usual: str) -> Path:
        return Path(os.environ.get(variable) or Path.home() / usual)

    if shell == "fish":
        return folder("XDG_CONFIG_HOME", ".config") / "fish" / "completions" / "vocable.fish"
    if shell == "zsh":
        return folder("ZDOTDIR", "") / ".zfunc" / "_vocable"
    return folder("XDG_DATA_HOME", ".local/share") / "bash-completion" / "completions" / "vocable"


def script(shell: str, commands: Mapping[str, Command]) -> str:
    """Return the script of a shell."""
    flags = [Slot(names.split(", "), text, SHELLS if "SHELL" in names else None, False) for names, text in GLOBAL]
    flags = [flag._replace(spellings=[name.split()[0] for name in flag.spellings]) for flag in flags]
    completed = [_completed(command) for command in commands.values()]
    body = {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](flags, completed)
    begin = f"# vocable {__version__}, written by: vocable --install-completion {shell}"
    return f"#compdef vocable\n{begin}\n{body}" if shell == "zsh" else f"{begin}\n{body}"


def _completed(command: Command) -> Completed:
    options, values, files = [], list[str](), False
    for name, parameter in command.parameters.items():
        is_file = metavar(parameter) in FILE_METAVARS or (name in command.words and name not in NO_FILES)
        words = [*choices(parameter), *_known_names(name)]
        if name in command.words:
            values, files = values + words, files or is_file
            continue
        text = re.split(r"[.;] ", in_options(parameter.help, command))[0].removesuffix(".")
        is_flag = bool in (parameter.items or parameter.kinds)
        options.append(Slot(options_of(parameter), text, None if is_flag else words, is_file))
    options.append(Slot(["-h", "--help"], GLOBAL[-1][1], None, False))
    return Completed(command.name, first_line(command.verb), options, Slot([], "", values, files))


def _known_names(argument: str) -> Iterable[str]:
    """Return the names of recipes or models that an argument may be."""
    if argument in ("recipe", "name"):
        return cast(RecipeList, recipes())
    if argument == "dense":
        return [BUILT_IN_DENSE]
    return BUILT_IN if argument in ("model", "models", "systems") else ()


BASH = Template("""\
_vocable() {
    local word=$${COMP_WORDS[COMP_CWORD]} before=$${COMP_WORDS[COMP_CWORD - 1]} verb= options= values= files= file i
    # Bash makes --option=value three words.
    if [[ $$word == = ]]; then word=; elif [[ $$before == = ]]; then before=$${COMP_WORDS[COMP_CWORD - 2]}; fi
    for ((i = 1; i < COMP_CWORD; i++)); do
        [[ $${COMP_WORDS[i]} == -* ]] || { verb=$${COMP_WORDS[i]}; break; }
    done
    case $$verb in
$verbs
    esac
    case "$$verb $$before" in
$taken
    *) [[ $$word != -* ]] || values=$$options ;;
    esac
    local IFS=$$' \\n'
    COMPREPLY=($$(compgen -W "$$values" -- "$$word"))
    [[ $$files && $$word != -* ]] || return 0
    compopt -o filenames 2>/dev/null
    while IFS= read -r file; do COMPREPLY+=("$$file"); done < <(compgen -f -- "$$word")
}
complete -F _vocable vocable
""")


def _bash(flags: Sequence[Slot], commands: Sequence[Completed]) -> str:
    def set_words(slot: Slot) -> str:
        return f"values='{' '.join(slot.values or ())}' files={'1' * slot.files}"

    start = Completed("''", "", [*flags], Slot([], "", [command.name for command in commands], False))
    verbs = [
        f"    {command.name}) {set_words(command.words)} options='{' '.join(_spellings(command.options))}' ;;"
        for command in (start, *commands)
    ]
    taken = defaultdict[str, list[str]](list)
    for name, options in [("", flags), *((command.name, command.options) for command in commands)]:
        for slot in options:
            if slot.values is not None:
                taken[set_words(slot)] += [f"'{name} {spelling}'" for spelling in slot.spellings]
    cases = [f"    {'|'.join(patterns)}) {values} ;;" for values, patterns in taken.items()]
    return BASH.substitute(verbs="\n".join(verbs), taken="\n".join(cases))


def _spellings(options: Sequence[Slot]) -> Iterator[str]:
    return (spelling for slot in options for spelling in slot.spellings)


ZSH = Template("""\
_vocable() {
    local curcontext=$$curcontext context state line
    local -a commands=(
$verbs
    )
    _arguments -C $flags '1: :->command' '*:: :->words'
    case $$state in
    command) _describe command commands ;;
    words)
        case $$words[1] in
$taken
        esac ;;
    esac
}
_vocable "$$@"
""")


def _zsh(flags: Sequence[Slot], commands: Sequence[Completed]) -> str:
    def action(slot: Slot) -> str:
        words = f"(({' '.join(slot.values)}))" if slot.values else ""
        if words and slot.files:
            return f' _alternative "words:word:{words}" "files:file:_files"'
        return words or ("_files" if slot.files else " ")

    def specification(slot: Slot) -> Iterator[str]:
        text = re.sub(r"([\[\]:\\])", r"\\\1", slot.text)
        for spelling in slot.spellings:
            value = "" if slot.values is None else f": :{action(slot)}"
            yield _in_quotes(f"*{spelling}[{text}]{value}")

    verbs = [f"        {_in_quotes(f'{command.name}:{command.text}')}" for command in commands]
    taken = []
    for command in commands:
        lines = [
            f"        {command.name}) _arguments",
            *(text for slot in command.options for text in specification(slot)),
        ]
        taken.append(" \\\n            ".join([*lines, _in_quotes(f"*: :{action(command.words)}")]) + " ;;")
    all_flags = " ".join(chain.from_iterable(map(specification, flags)))
    return ZSH.substitute(verbs="\n".join(verbs), flags=all_flags, taken="\n".join(taken))


FISH = Template("""\
function __vocable_command
    for word in (commandline -opc)[2..]
        string match -q -- '-*' $$word; or begin
            echo $$word
            return
        end
    end
end
function __vocable_has
    test "$$(__vocable_command)" = "$$argv[1]"
end
complete -c vocable -f
$lines
""")


def _fish(flags: Sequence[Slot], commands: Sequence[Completed]) -> str:
    def lines(name: str, slots: Sequence[Slot]) -> Iterator[str]:
        for slot in slots:
            named = "".join(
                f" -{'l' if spelling.startswith('--') else 's'} {spelling.lstrip('-')}" for spelling in slot.spellings
            )
            takes = " -r" if slot.files else "" if slot.values is None else " -x"
            takes = " -F" if slot.files and not slot.spellings else takes
            values = f" -a '{' '.join(slot.values)}'" if slot.values else ""
            text = f" -d {_in_quotes(slot.text)}" if slot.text else ""
            yield f"complete -c vocable -n '__vocable_has {name}'{named}{takes}{values}{text}"

    first = [Slot([], command.text, [command.name], False) for command in commands]
    parts = [('""', [*flags, *first]), *((command.name, [*command.options, command.words]) for command in commands)]
    return FISH.substitute(lines="\n".join(line for name, slots in parts for line in lines(name, slots)))


def _in_quotes(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
