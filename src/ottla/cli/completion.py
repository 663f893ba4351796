"""`ottla completion`: a script that teaches a shell the commands and their options."""

from __future__ import annotations

from typing import Literal

Shell = Literal["bash", "zsh", "fish"]


def completion(shell: Shell, /) -> None:
    """Print a completion script for bash, zsh or fish.

    For bash: `ottla completion bash > ~/.local/share/bash-completion/completions/ottla`.
    For zsh, into a directory of its `fpath`: `ottla completion zsh > ~/.zsh/completions/_ottla`.
    For fish: `ottla completion fish > ~/.config/fish/completions/ottla.fish`.

    Parameters
    ----------
    shell
        Which.
    """
    from ottla.cli.app import app

    print(app.generate_completion(prog_name="ottla", shell=shell))
