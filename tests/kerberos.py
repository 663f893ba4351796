"""A Kerberos realm for tests: MIT's key distribution center (KDC) on loopback, with a database of its own.

    realm = Realm(directory)
    realm.add("kafka/localhost", "alice")
    keytab = realm.keytab("kafka/localhost")

Its programs and the package gssapi are those that are installed. Where they are not, Debian's packages are downloaded
and unpacked below `build/kerberos`, which needs no rights, and gssapi is compiled against their headers, once.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from ottla.testing.process import reserve

ROOT = Path(__file__).resolve().parents[1]
UNPACKED = ROOT / "build" / "kerberos"
PACKAGES = (
    "krb5-kdc", "krb5-admin-server", "krb5-user", "libkadm5srv-mit12", "libkadm5clnt-mit12", "libkdb5-10",
    "libgssrpc4", "libverto1", "libverto-libev1", "libev4", "libkrb5-dev", "krb5-multidev", "comerr-dev",
    "libkrb5-3", "libgssapi-krb5-2", "libk5crypto3", "libkrb5support0",
)  # fmt: skip
GSSAPI = "gssapi>=1.9"
REALM = "OTTLA.TEST"
PASSWORD = "a password of nobody"
START_S = 60.0
INSTALL_S = 900


class NoKerberos(Exception):
    """No KDC is installed, and none can be."""


@functools.cache
def tools() -> dict[str, str]:
    """An environment in which Kerberos's programs are found. Raises NoKerberos."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/bin"
    if shutil.which("krb5kdc", path=path) is None or shutil.which("kinit", path=path) is None:
        with _alone():
            _unpack()
        (libraries,) = {each.parent for each in UNPACKED.glob("usr/lib/*/libkdb5.so.*")}
        return {
            "PATH": f"{UNPACKED}/usr/sbin:{UNPACKED}/usr/bin:{path}",
            "LD_LIBRARY_PATH": f"{libraries}:{os.environ.get('LD_LIBRARY_PATH', '')}",
            "OTTLA_TEST_KDB": f"{libraries}/krb5/plugins/kdb",
        }
    return {"PATH": path}


@functools.cache
def package() -> str:
    """The directory that has to be in PYTHONPATH for gssapi; empty where it is installed. Raises NoKerberos."""
    if importlib.util.find_spec("gssapi") is not None:
        return ""
    place = UNPACKED / f"python-{sys.version_info.major}.{sys.version_info.minor}"
    with _alone():
        if not (place / "gssapi").is_dir():
            _compile(place)
    sys.path.append(str(place))
    return str(place)


def _compile(place: Path) -> None:
    """Raises NoKerberos, for a second worker of the same run without another try, which takes half a minute."""
    failed, run = UNPACKED / "failed", os.environ.get("PYTEST_XDIST_TESTRUNUID", "")
    if run and failed.exists() and failed.read_text().startswith(f"{run} "):
        raise NoKerberos(failed.read_text().partition(" ")[2])
    # No test's time hangs on how fast its code is, and the compiler's does.
    environ = {**os.environ, "CFLAGS": f"{os.environ.get('CFLAGS', '')} -O0"}
    if shutil.which("krb5-config") is None:
        _unpack()
        (headers,) = {each.parents[1] for each in UNPACKED.glob("usr/include/mit-krb5/gssapi/gssapi.h")}
        (libraries,) = {each.parent for each in UNPACKED.glob("usr/lib/*/mit-krb5/libgssapi_krb5.so")}
        environ |= {
            # `krb5.h` asks for `et/com_err.h`; gssapi_ext.h is looked for where `krb5-config` says, which is not here.
            "GSSAPI_COMPILER_ARGS": f"-I{headers} -I{headers.parent} -DHAS_GSSAPI_EXT_H",
            "GSSAPI_LINKER_ARGS": f"-L{libraries} -L{libraries.parent} -lgssapi_krb5",
            "GSSAPI_KRB5_MAIN_LIB": str(libraries / "libgssapi_krb5.so"),
            "GSSAPI_SUPPORT_DETECT": "false",
        }
    # Beside its place and then into it: what is interrupted is no package.
    made = place.with_name(f"{place.name}.new")
    shutil.rmtree(made, ignore_errors=True)
    try:
        _run([sys.executable, "-m", "pip", "install", "--quiet", "--target", str(made), GSSAPI], environ)
    except NoKerberos as error:
        failed.write_text(f"{run} {error}")
        raise
    shutil.rmtree(place, ignore_errors=True)
    made.rename(place)


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Held by one worker of all runs in this tree."""
    UNPACKED.mkdir(parents=True, exist_ok=True)
    with (UNPACKED / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _unpack() -> None:
    if (UNPACKED / "complete").exists():
        return
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise NoKerberos("there is no krb5kdc, and no apt-get to fetch it")
    UNPACKED.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(NoKerberos):
        _run(["apt-get", "update", "-qq"])  # only root may; the lists may be there already
    _run(["apt-get", "download", "-qq", *PACKAGES])
    for each in UNPACKED.glob("*.deb"):
        _run(["dpkg-deb", "-x", str(each), str(UNPACKED)])
        each.unlink()
    (UNPACKED / "complete").touch()


def _run(command: list[str], environ: dict[str, str] | None = None) -> None:
    """Raises NoKerberos."""
    try:
        subprocess.run(
            command, cwd=UNPACKED, env=environ, check=True, capture_output=True, text=True, timeout=INSTALL_S
        )
    except (OSError, subprocess.SubprocessError) as error:
        said = str(getattr(error, "stderr", "") or error).strip().splitlines()
        raise NoKerberos(f"{command[0]} failed: {said[-1] if said else error}") from None


class Realm:
    """A KDC that runs until `close`."""

    def __init__(self, directory: Path, *, life: str = "10h") -> None:
        """`life` of a ticket at most. Raises NoKerberos."""
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.configuration = directory / "krb5.conf"
        self._held = reserve(0)
        port = self._held.getsockname()[1]
        found = tools()
        modules = f"[dbmodules]\n db_module_dir = {found['OTTLA_TEST_KDB']}\n" if "OTTLA_TEST_KDB" in found else ""
        self.configuration.write_text(
            f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n dns_lookup_realm = false\n"
            " dns_canonicalize_hostname = false\n rdns = false\n udp_preference_limit = 1\n"
            f"[realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{port}\n }}\n{modules}"
        )
        (directory / "kdc.conf").write_text(
            f"[kdcdefaults]\n kdc_listen = 127.0.0.1:{port}\n kdc_tcp_listen = 127.0.0.1:{port}\n"
            f"[realms]\n {REALM} = {{\n  database_name = {directory}/principal\n  key_stash_file = {directory}/stash\n"
            f"  acl_file = {directory}/kadm5.acl\n  max_life = {life}\n }}\n{modules}"
        )
        self.environ = {
            **os.environ,
            **found,
            "KRB5_CONFIG": str(self.configuration),
            "KRB5_KDC_PROFILE": f"{directory}/kdc.conf",
            "KRB5CCNAME": f"FILE:{directory}/tickets",
        }
        self._ask("kdb5_util", "create", "-s", "-P", PASSWORD)
        self._output = (directory / "kdc.out").open("ab")
        self._process = subprocess.Popen(
            ["krb5kdc", "-n"], env=self.environ, stdin=subprocess.DEVNULL, stdout=self._output, stderr=self._output
        )
        deadline = time.monotonic() + START_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise NoKerberos(f"krb5kdc does not start: {(directory / 'kdc.out').read_text()}") from None
                time.sleep(0.02)

    def _ask(self, program: str, *arguments: str, text: str | None = None) -> str:
        done = subprocess.run(
            [program, *arguments], env=self.environ, input=text or "", capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (program, arguments, done.stdout, done.stderr)
        return done.stdout

    def add(self, *principals: str, password: str | None = None) -> None:
        """With a random key unless a password is given."""
        how = "-randkey" if password is None else f"-pw {password}"
        self._ask("kadmin.local", text="".join(f"addprinc {how} {each}\n" for each in principals))

    def keytab(self, *principals: str, keep: bool = True) -> str:
        """A file with their keys, which `keep` leaves as they are."""
        path = self.directory / f"{principals[0].replace('/', '-')}.keytab"
        how = "-norandkey " if keep else ""
        path.unlink(missing_ok=True)
        self._ask("kadmin.local", text="".join(f"ktadd {how}-k {path} {each}\n" for each in principals))
        return str(path)

    def kinit(self, principal: str, keytab: str) -> str:
        """The path of a cache with a ticket of the principal."""
        path = self.directory / f"{principal.replace('/', '-')}.tickets"
        self._ask("kinit", "-k", "-t", keytab, "-c", f"FILE:{path}", principal)
        return str(path)

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(START_S)
        self._output.close()
        self._held.close()
