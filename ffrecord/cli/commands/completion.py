"""`ffrecord completion`: scripts that let a shell complete the command, its options and file names.

The scripts are written here, not by a library. Those of shtab 1.13 do not complete values with a space, such as
`--format "image folder"`. argcomplete 3.7 starts Python at each press of the Tab key, and has to be installed.
"""

import argparse
import shlex

from ffrecord.cli.commands import COMMANDS, add_common, command
from ffrecord.cli.terminal import exit_codes
from ffrecord.cli.terminal.output import Output
from ffrecord.errors import ArgumentError

EXAMPLES = """\
examples:
  eval "$(ffrecord completion bash)"       # in ~/.bashrc
  eval "$(ffrecord completion zsh)"        # in ~/.zshrc
  ffrecord completion fish | source        # in config.fish"""

BASH = """\
_ffrecord() {{
  local IFS=$'\\n' word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} choices="" found
  if [ "$COMP_CWORD" -eq 1 ]; then
    choices=$'{commands}'
  else
    case "${{COMP_WORDS[1]}} $before" in
{values}
    esac
    if [[ $word == -* ]]; then
      case ${{COMP_WORDS[1]}} in
{options}
      esac
    fi
  fi
  COMPREPLY=()
  if [ -n "$choices" ]; then
    while IFS= read -r found; do COMPREPLY+=("$found"); done < <(compgen -W "$choices" -- "$word")
  else
    while IFS= read -r found; do COMPREPLY+=("$found"); done < <(compgen -f -- "$word")
  fi
}}
complete -o filenames -F _ffrecord ffrecord"""
ZSH = "autoload -U +X bashcompinit && bashcompinit\n"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the name of the shell."""
    parser.epilog = EXAMPLES
    parser.add_argument("shell", choices=("bash", "zsh", "fish"))


def run(given: argparse.Namespace, out: Output) -> int:
    """Print the script."""
    if out.json:
        raise ArgumentError("--json cannot be used here: the output is a script for a shell")
    scripts = {"bash": make_bash_script, "zsh": lambda: ZSH + make_bash_script(), "fish": make_fish_script}
    for line in scripts[given.shell]().splitlines():
        out.line(line)
    return exit_codes.DONE


def list_actions(name: str) -> list[argparse.Action]:
    """Return the arguments and options of a command."""
    parser = argparse.ArgumentParser()
    command(name).arguments(parser)
    add_common(parser)
    return parser._actions


def list_options(name: str) -> list[str]:
    """Return the options of a command, such as "-n" and "--count"."""
    return [option for action in list_actions(name) for option in action.option_strings]


def list_choices(name: str) -> dict[str, list[str]]:
    """Return the values that may follow each option of a command, if they are a choice.

    Returns:
        Option → values. The key for an argument without an option is the command's name.
    """
    return {
        option: list(map(str, action.choices))
        for action in list_actions(name)
        if action.choices
        for option in action.option_strings or [name]
    }


def make_bash_script() -> str:
    """Make the script for bash. zsh can read it, too."""
    following, own = [], []
    for name in COMMANDS:
        for option, choices in list_choices(name).items():
            following.append(f"      {shlex.quote(f'{name} {option}')}) choices=$'{_join_words(choices)}' ;;")
        own.append(f"        {name}) choices=$'{_join_words(list_options(name))}' ;;")
    names = _join_words([*COMMANDS, "--version", "--help"])
    return BASH.format(commands=names, values="\n".join(following), options="\n".join(own))


def _join_words(words: list[str]) -> str:
    """Join words by line ends for a string of bash. `compgen` removes one more layer of quotes."""
    return "\\n".join(word.replace(" ", "\\\\ ") for word in words)


def make_fish_script() -> str:
    """Make the script for fish."""
    lines = ["complete -c ffrecord -n __fish_use_subcommand -l version"]
    for name, (_, summary) in COMMANDS.items():
        lines.append(f"complete -c ffrecord -n __fish_use_subcommand -f -a {name} -d {shlex.quote(summary)}")
        begin = f"complete -c ffrecord -n '__fish_seen_subcommand_from {name}'"
        for action in list_actions(name):
            kinds = [f"-{'l' if each.startswith('--') else 's'} {each.lstrip('-')}" for each in action.option_strings]
            chosen = "" if not action.choices else f" -x -a {shlex.quote(' '.join(map(shlex.quote, action.choices)))}"
            if kinds or chosen:
                lines.append(f"{begin} {' '.join(kinds)}{chosen}")
    return "\n".join(lines)
