"""The steps of a Containerfile, run in a minimal Debian without a container engine: as root, by chroot."""

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_DEBIAN = "http://deb.debian.org/debian"


@dataclass
class Stage:
    """`steps`: RUN and COPY, in order, each with the variables that are set by then."""

    base: str
    steps: list[tuple[str, str, Mapping[str, str]]] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    user: str = "0:0"
    commands: dict[str, list[str]] = field(default_factory=dict)  # ENTRYPOINT, CMD, HEALTHCHECK


def read_stages(path: Path) -> list[Stage]:
    """Raises ValueError for an instruction that is not known here."""
    stages: list[Stage] = []
    for line in path.read_text().replace("\\\n", " ").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        instruction, _, rest = line.partition(" ")
        match instruction:
            case "FROM":
                stages.append(Stage(rest.split()[0]))
            case "RUN" | "COPY":
                stages[-1].steps.append((instruction, rest, {**stages[-1].environment}))
            case "ENV":
                name, _, value = rest.partition("=")
                stages[-1].environment[name] = value
            case "USER":
                stages[-1].user = rest
            case "ENTRYPOINT" | "CMD" | "HEALTHCHECK":
                stages[-1].commands[instruction] = json.loads(rest[rest.index("[") :])
            case "VOLUME" | "EXPOSE" | "STOPSIGNAL" | "ARG":  # arguments are not given
                pass
            case _:
                raise ValueError(f"{instruction} is not known here")
    return stages


def make_root(program: Sequence[str | Path], release: str, root: Path, environment: Mapping[str, str]) -> None:
    """A minimal Debian, by debootstrap."""
    arguments = [*program, "--variant=minbase", release, root, _DEBIAN]
    subprocess.run(arguments, env={**os.environ, **environment}, check=True, capture_output=True, timeout=600)


def build(stages: Sequence[Stage], bare: Path, source: Path, directory: Path) -> Path:
    """The root of the last stage; each begins as a copy of the `bare` one."""
    roots: list[Path] = []
    for number, stage in enumerate(stages):
        root = directory / f"stage-{number}"
        subprocess.run(["cp", "-a", bare, root], check=True)
        shutil.copy("/etc/resolv.conf", root / "etc" / "resolv.conf")
        roots.append(root)
        for instruction, what, environment in stage.steps:
            if instruction == "RUN":
                _run(root, what, environment)
            elif what.startswith("--from="):
                _, origin, target = what.split()
                subprocess.run(["cp", "-a", roots[0] / origin.lstrip("/"), root / target.lstrip("/")], check=True)
            else:
                _copy_context(source, root / what.split()[1].lstrip("/"))
    return roots[-1]


def _run(root: Path, command: str, environment: Mapping[str, str]) -> None:
    """With what this machine tells pip: a container engine is told so by --build-arg or a mounted file."""
    ours = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    lent = [Path("/etc/pip.conf"), Path("/etc/ssl/certs"), *map(Path, ours.get("PIP_FIND_LINKS", "").split())]
    mounts = []
    for path in filter(Path.exists, lent):
        inside = root / str(path).lstrip("/")
        if path.is_dir():
            inside.mkdir(parents=True, exist_ok=True)
        elif not inside.exists():
            inside.touch()
        mounts.append(f"mount --bind {shlex.quote(str(path))} {shlex.quote(str(inside))}")
    if "pip install" not in command:
        mounts, ours = [], {}
    path_ = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(
        _contained(root, ["/bin/sh", "-c", command], {**path_, **ours, **environment}, mounts),
        capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"


def _copy_context(source: Path, target: Path) -> None:
    """What the file beside the Containerfile lets into the context."""
    rules = (source / "deploy" / "container" / "Containerfile.dockerignore").read_text().splitlines()
    assert rules[0] == "*"
    for name in (rule[1:] for rule in rules if rule.startswith("!")):
        if (source / name).is_dir():
            shutil.copytree(source / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            target.mkdir(exist_ok=True)
            shutil.copy(source / name, target / name)


def started(root: Path, stage: Stage, volume: Path, environment: Mapping[str, str]) -> list[str]:
    """The command that runs a stage's program, as its user, on a root that cannot be written to."""
    quoted, data = shlex.quote(str(root)), shlex.quote(str(volume))
    mounts = [
        f"mount --bind {data} {quoted}/var/lib/broker",
        f"mount -t tmpfs tmpfs {quoted}/tmp",
        f"mount -o remount,ro,bind {quoted}",
    ]
    command = stage.commands["ENTRYPOINT"]
    return _contained(root, command, {**stage.environment, **environment}, mounts, user=stage.user)


def _contained(
    root: Path, command: Sequence[str], environment: Mapping[str, str], mounts: Sequence[str], user: str = "0:0"
) -> list[str]:
    """In namespaces of its own: what is mounted and started there ends with it."""
    quoted = shlex.quote(str(root))
    variables = [f"{name}={value}" for name, value in environment.items()]
    inside = ["chroot", f"--userspec={user}", str(root), "/usr/bin/env", "-i", *variables, *command]
    script = [
        f"mount --bind {quoted} {quoted}",
        f"mount -t proc proc {quoted}/proc",
        *mounts,
        f'cd / && exec {shlex.join(inside)} "$@"',
    ]
    return [
        "unshare", "--mount", "--pid", "--fork", "--kill-child", "/bin/sh", "-ec", "\n".join(script), "contained",
    ]  # fmt: skip
