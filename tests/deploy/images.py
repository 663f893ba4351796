"""Builds the image of a Dockerfile without Docker: each instruction a layer, kept by what it depends on, and the base
image a Debian of debootstrap, which is what Debian's own images are made with.

It knows what `deploy/Dockerfile` uses, and refuses anything else.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from string import Template

from dockerfile_parse import DockerfileParser

from tests.deploy.roots import ROOT, Root

LAYERS = ROOT / ".cache" / "deploy"
CERTIFICATES = "/run/certificates.pem"
OF_THIS_MACHINE = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "http_proxy", "https_proxy", "no_proxy")
"""As `docker build` takes the proxies of its host along."""


@dataclass(frozen=True)
class Image:
    """What a stage has come to."""

    layers: tuple[str, ...] = ()
    """Folders, the uppermost first."""
    key: str = ""
    """Hash of all that the image depends on."""
    env: Mapping[str, str] = field(default_factory=dict)
    user: str = "0:0"
    workdir: str = "/"
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    health: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    ports: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    stop_signal: str = "SIGTERM"

    @property
    def lower(self) -> str:
        return ":".join(self.layers)


def instructions(dockerfile: Path) -> list[tuple[str, str]]:
    """(INSTRUCTION, the rest of it) in order, without comments."""
    with open(dockerfile, "rb") as file:
        found = DockerfileParser(fileobj=file).structure
    return [(each["instruction"], each["value"]) for each in found if each["instruction"] != "COMMENT"]


def stages(dockerfile: Path) -> list[tuple[str, str, list[tuple[str, str]]]]:
    """(name, base, instructions) of each stage."""
    arguments: dict[str, str] = {}
    found: list[tuple[str, str, list[tuple[str, str]]]] = []
    for instruction, value in instructions(dockerfile):
        if instruction == "ARG":
            name, _, default = value.partition("=")
            arguments[name] = default
        elif instruction == "FROM":
            base, _, name = Template(value).substitute(arguments).partition(" AS ")
            found.append((name, base, []))
        else:
            found[-1][2].append((instruction, value))
    return found


def settled(image: Image, instruction: str, value: str) -> Image | None:
    """The image behind an instruction that changes no file; None for one that does."""
    if instruction in ("ENV", "LABEL"):
        pairs = dict(each.split("=", 1) for each in shlex.split(value))
        known = image.env if instruction == "ENV" else image.labels
        return replace(image, **{"env" if instruction == "ENV" else "labels": {**known, **pairs}})
    words = tuple(value.split())
    if instruction == "HEALTHCHECK":
        options, _, command = value.partition("CMD ")
        assert all(each.startswith("--") for each in options.split()), options
        return replace(image, health=tuple(json.loads(command)))
    if instruction in ("ENTRYPOINT", "CMD"):
        command = tuple(json.loads(value))
        return replace(image, entrypoint=command) if instruction == "ENTRYPOINT" else replace(image, command=command)
    simple = {"USER": {"user": value}, "VOLUME": {"volumes": words}, "EXPOSE": {"ports": words}}
    simple["STOPSIGNAL"] = {"stop_signal": value}
    return replace(image, **simple[instruction]) if instruction in simple else None  # type: ignore[arg-type]


def build(dockerfile: Path, context: Path) -> Image:
    """The last stage's image. Raises RuntimeError where an instruction fails."""
    made: dict[str, Image] = {}
    image = Image()
    for name, base, steps in stages(dockerfile):
        image = made.get(base) or _bootstrapped(base)
        for instruction, value in steps:
            image = settled(image, instruction, value) or _changed(image, instruction, value, context, made)
        made[name] = image
    return image


def _bootstrapped(base: str) -> Image:
    """Debian's image of that name, as far as it is a Debian: `debian:SUITE-slim` is one without manual pages."""
    repository, _, tag = base.partition(":")
    assert repository == "debian", f"{base}: only images of Debian can be made here"
    suite = tag.removesuffix("-slim")
    place = LAYERS / f"debian-{suite}"
    if not place.exists():
        print(f"== debootstrap {suite}", flush=True)
        begun = place.with_suffix(".begun")
        shutil.rmtree(begun, ignore_errors=True)
        begun.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["debootstrap", "--variant=minbase", suite, str(begun)], check=True, stdout=subprocess.DEVNULL)
        begun.rename(place)
    return Image((str(place),), key=base, env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"})


def _changed(image: Image, instruction: str, value: str, context: Path, made: Mapping[str, Image]) -> Image:
    """The image behind an instruction that changes files."""
    key = hashlib.sha256(f"{image.key}\n{instruction} {value}".encode())
    copied: list[tuple[Path, Path]] = []
    if instruction == "COPY":
        *sources, target = value.split()
        origin = sources.pop(0).removeprefix("--from=") if sources[0].startswith("--from=") else None
        place = Path(image.workdir) / target
        if origin is not None:
            key.update(made[origin].key.encode())
        else:
            for source in sources:
                inside = place / source if len(sources) > 1 or target.endswith("/") else place
                copied += [(context / file, inside / file.relative_to(source)) for file in _files(context, source)]
            for outside, inside in copied:
                key.update(f"{inside}\n".encode() + outside.read_bytes())
    digest = key.hexdigest()[:24]
    layer = LAYERS / digest
    after = replace(image, layers=(str(layer), *image.layers), key=digest)
    if instruction == "WORKDIR":
        after = replace(after, workdir=value)
    if layer.exists():
        return after
    print(f"== {instruction} {value}"[:100], flush=True)
    begun = Path(f"{layer}.begun")
    shutil.rmtree(begun, ignore_errors=True)
    begun.mkdir(parents=True)
    if instruction == "RUN":
        _run(image, value, str(begun))
    elif instruction == "WORKDIR":
        with Root(image.lower, upper=str(begun)) as root:
            root.run(["mkdir", "-p", value])
    elif instruction == "COPY" and copied:
        for outside, inside in copied:
            end = begun / inside.relative_to("/")
            end.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(outside, end)
            end.chmod(0o644)
    elif instruction == "COPY":
        with Root(made[origin or ""].lower, volumes={"/media": str(begun)}) as root:
            root.run(f"mkdir -p /media{place} && cp -a {shlex.join(sources)}/. /media{place}")
    else:
        raise RuntimeError(f"{instruction} is not known here")
    for leftover in ("proc", "sys", "dev", "run", "tmp", ".before"):  # where `Root` mounts something
        with_files = begun / leftover
        if with_files.is_dir() and not any(with_files.iterdir()):
            with_files.rmdir()
    shutil.rmtree(f"{begun}.work", ignore_errors=True)
    begun.rename(layer)
    return after


def _files(context: Path, source: str) -> list[Path]:
    """As the ignore file says: nothing that was compiled or made here."""
    place = context / source
    if place.is_file():
        return [Path(source)]
    found = [path for path in sorted(place.rglob("*")) if path.is_file() and path.suffix not in (".so", ".c", ".pyc")]
    return [path.relative_to(context) for path in found if ".egg-info" not in str(path)]


def _run(image: Image, command: str, upper: str) -> None:
    env = {**image.env, **{name: os.environ[name] for name in OF_THIS_MACHINE if name in os.environ}}
    binds = {}
    if "PIP_CERT" in os.environ:
        binds[CERTIFICATES] = os.environ["PIP_CERT"]
        env["PIP_CERT"] = CERTIFICATES
    with Root(image.lower, upper=upper, binds=binds, network=True) as root:
        root.run(command, cwd=image.workdir, env=env, timeout_s=1800)


def container(image: Image, env: Mapping[str, str], volume: Path, *arguments: str, hosts: str = "/etc/hosts") -> Root:
    """A container of the image that has not begun yet; with `arguments` in the place of the image's command."""
    uid, _, gid = image.user.partition(":")
    variables = [f"{name}={value}" for name, value in {**image.env, **env}.items()]
    (where,) = image.volumes
    if not volume.exists():
        volume.mkdir(parents=True)
        os.chown(volume, int(uid), int(gid))
    user = ["setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups", "--no-new-privs", "--bounding-set=-all"]
    main = [
        *user,
        "env",
        "-i",
        f"--chdir={image.workdir}",
        *variables,
        *image.entrypoint,
        *(arguments or image.command),
    ]
    return Root(image.lower, binds={"/etc/hosts": hosts}, volumes={where: str(volume)}, main=main)


def in_container(root: Root, image: Image, command: Sequence[str], env: Mapping[str, str] | None = None) -> str:
    """As `docker exec`. Raises RuntimeError where the command fails."""
    variables = {**image.env, **(env or {})}
    return root.run(command, env=variables, user=image.user, cwd=image.workdir).stdout
