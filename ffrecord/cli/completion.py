"""`ffrecord completion`: what makes a shell complete the command, its options and file names."""

import argparse
import shlex

from ffrecord.cli import exits
from ffrecord.cli.commands import COMMANDS, command
from ffrecord.cli.output import Output

EXAMPLES = """\
examples:
  eval "$(ffrecord completion bash)"            # in ~/.bashrc
  eval "$(ffrecord completion zsh)"             # in ~/.zshrc
  ffrecord completion fish | source             # in ~/.config/fish/config.fish"""

BASH = """\
_ffrecord() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} choices=""
  if [ "$COMP_CWORD" -eq 1 ]; then
    choices="{commands}"
  elif [[ $word == -* ]]; then
    case ${{COMP_WORDS[1]}} in
{cases}
    esac
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
    """The shell."""
    parser.epilog = EXAMPLES
    parser.add_argument("shell", choices=("bash", "zsh", "fish"))


def run(given: argparse.Namespace, out: Output) -> int:
    """Print it."""
    scripts = {"bash": bash, "zsh": lambda: ZSH + bash(), "fish": fish}
    for line in scripts[given.shell]().splitlines():
        out.line(line)
    return exits.DONE


def options(name: str) -> list[str]:
    """The long options of a command."""
    parser = argparse.ArgumentParser(add_help=False)
    command(name).arguments(parser)
    own = [each for action in parser._actions for each in action.option_strings if each.startswith("--")]
    return [*own, "--json", "--quiet", "--debug", "--help"]


def bash() -> str:
    """For bash, and for zsh, which can read it."""
    cases = "\n".join(f'      {name}) choices="{" ".join(options(name))}" ;;' for name in COMMANDS)
    return BASH.format(commands=" ".join(COMMANDS), cases=cases)


def fish() -> str:
    """For fish."""
    lines = []
    for name, (_, summary) in COMMANDS.items():
        lines.append(f"complete -c ffrecord -n __fish_use_subcommand -f -a {name} -d {shlex.quote(summary)}")
        lines += [
            f"complete -c ffrecord -n '__fish_seen_subcommand_from {name}' -l {option[2:]}" for option in options(name)
        ]
    return "\n".join(lines)
